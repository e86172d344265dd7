//! Prints which imports run up the floors that docs/design/floors.md lists, or form a circle.

use gpunet_architecture::{Crate, Tree, check, crates};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str =
    "usage: gpunet-architecture                          all crates, by docs/design/floors.md of this folder
       gpunet-architecture CRATE [FLOOR,FLOOR,...]   one, by the floors that are given (from below)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let list =
        |floors: &str| floors.split(',').filter(|floor| !floor.is_empty()).map(str::to_owned).collect();
    let crates = match arguments.as_slice() {
        [] => match std::fs::read_to_string("docs/design/floors.md") {
            Ok(text) => crates(&text),
            Err(error) => {
                return refuse(&format!("docs/design/floors.md: {error}; run it in the repository's root"));
            }
        },
        [folder, floors @ ..] if !folder.starts_with('-') && floors.len() <= 1 => {
            vec![Crate {
                folder: folder.clone(),
                floors: floors.first().map_or_else(Vec::new, |floors| list(floors)),
            }]
        }
        _ => return refuse(USAGE),
    };
    let mut count = 0;
    for listed in &crates {
        let sources: PathBuf = Path::new(&listed.folder).join("src");
        match Tree::read(&sources) {
            Ok(tree) => {
                for violation in check(&tree, &listed.floors) {
                    count += 1;
                    println!("{}: {violation}", listed.folder);
                }
            }
            Err(error) => return refuse(&format!("{}: {error}", sources.display())),
        }
    }
    println!("{count} violations in {} crates", crates.len());
    ExitCode::from(u8::from(count > 0))
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}
