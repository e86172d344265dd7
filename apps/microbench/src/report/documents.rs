//! The marks of documents, and what stands between them.
//!
//! A mark is a line of its own, outside of fenced blocks:
//!
//! ```text
//! <!-- gpunet-bench: begin REPORT VIEW -->      what render makes of REPORT.json
//! <!-- gpunet-bench: begin -->                  all tables of the report that --tables inserts
//! <!-- gpunet-bench: end -->
//! ```

use super::{Report, keep, markdown, views};
use crate::outcome::Outcome;
use gpunet_proxy::files::read_text;
use std::ops::Range;
use std::path::{Path, PathBuf};

const MARK: &str = "<!-- gpunet-bench:";
const BEGIN: &str = "<!-- gpunet-bench: begin -->";
const END: &str = "<!-- gpunet-bench: end -->";

/// What stands between two marks.
#[derive(Debug, PartialEq, Eq)]
struct Block<'a> {
    /// The line of the first mark, from one on.
    line: usize,
    /// The report and the view; `None` in a block for `--tables`.
    of: Option<(&'a str, &'a str)>,
    /// The text between the marks.
    text: Range<usize>,
}

/// Returns the blocks of a page, or the line and the reason why it has none that can be told.
fn blocks(page: &str) -> Result<Vec<Block<'_>>, String> {
    let (mut found, mut fenced, mut at) = (Vec::new(), false, 0);
    let mut open: Option<Block<'_>> = None;
    for (number, line) in page.split_inclusive('\n').enumerate() {
        let (line_number, start) = (number + 1, at);
        at += line.len();
        let line = line.trim_end();
        fenced ^= line.trim_start().starts_with("```");
        let Some(mark) = line.strip_prefix(MARK).filter(|_| !fenced) else { continue };
        let words: Vec<&str> = mark.split_whitespace().collect();
        let of = match words[..] {
            ["begin", "-->"] => None,
            ["begin", report, view, "-->"] => Some((report, view)),
            ["end", "-->"] => {
                let block = open.take().ok_or(format!("line {line_number}: an end without a begin"))?;
                found.push(Block { text: block.text.start..start, ..block });
                continue;
            }
            _ => {
                return Err(format!(
                    "line {line_number}: unknown mark {line}: one is {BEGIN}, with a report and a view \
                     after \"begin\" or without both, or {END}"
                ));
            }
        };
        if let Some(block) = open {
            return Err(format!("line {}: no {END} before the next begin", block.line));
        }
        open = Some(Block { line: line_number, of, text: at..at });
    }
    open.map_or(Ok(found), |block| Err(format!("line {}: no {END} after it", block.line)))
}

/// Checks that tables can be inserted into the document.
pub fn check_page(path: &Path) -> Outcome<()> {
    keep::check_target("--tables", path)?;
    page(path, "").map(drop)
}

/// Inserts all tables into a document, between its two marks that name no report.
pub fn insert(report: &Report, path: &Path) -> Outcome<()> {
    let text = page(path, &markdown::render(report))?;
    Ok(std::fs::write(path, text).map_err(|error| format!("--tables {}: {error}", path.display()))?)
}

/// Returns the document with these tables.
fn page(path: &Path, tables: &str) -> Outcome<String> {
    let failed = |why: String| format!("--tables {}: {why}", path.display());
    let mut text = read_text(path, super::MOST).map_err(|error| failed(error.to_string()))?;
    let place = {
        let blocks = blocks(&text).map_err(failed)?;
        blocks.into_iter().find(|block| block.of.is_none()).map(|block| block.text)
    };
    let place = place.ok_or_else(|| failed(format!("no lines {BEGIN} and {END}")))?;
    text.replace_range(place, tables);
    Ok(text)
}

/// A report by the name that marks give it: that of its file without the ending.
pub struct Named {
    name: String,
    report: Report,
    /// The one before: that of the same name in the folder `previous` beside the file.
    before: Option<Report>,
}

impl Named {
    /// Reads reports.
    pub fn read(paths: &[PathBuf]) -> Outcome<Vec<Self>> {
        let mut read: Vec<Self> = Vec::new();
        for path in paths {
            let report = super::read(path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if read.iter().any(|other| other.name == name) {
                return Err(format!("{}: another report has the name {name}, too", path.display()).into());
            }
            let before = path.with_file_name("previous").join(path.file_name().unwrap_or_default());
            let before = before.exists().then(|| super::read(&before)).transpose()?;
            read.push(Self { name, report, before });
        }
        Ok(read)
    }

    pub fn report(&self) -> &Report {
        &self.report
    }
}

/// The pages of a folder whose marks name reports.
pub struct Documents {
    pages: Vec<Page>,
}

struct Page {
    path: PathBuf,
    /// Its text as render makes it.
    text: String,
    /// The blocks that are others now, in words.
    differing: Vec<String>,
    marks: usize,
}

impl Documents {
    /// Reads the pages in a folder and below, and makes the tables that their marks name.
    pub fn read(folder: &Path, reports: &[Named]) -> Outcome<Self> {
        let mut paths = Vec::new();
        markdown_files(folder, &mut paths)
            .map_err(|error| format!("--docs {}: {error}", folder.display()))?;
        paths.sort();
        let mut pages = Vec::new();
        for path in paths {
            let failed = |why: String| format!("{}: {why}", path.display());
            let text = read_text(&path, super::MOST).map_err(|error| failed(error.to_string()))?;
            let page = Page::make(path.clone(), &text, reports).map_err(failed)?;
            if page.marks > 0 {
                pages.push(page);
            }
        }
        if pages.is_empty() {
            let why = "no page in it has a mark that names a report";
            return Err(format!("--docs {}: {why}", folder.display()).into());
        }
        Ok(Self { pages })
    }

    /// Returns the blocks that are not what render makes of the reports, in words.
    pub fn differing(&self) -> impl Iterator<Item = &str> {
        self.pages.iter().flat_map(|page| page.differing.iter().map(String::as_str))
    }

    /// Returns the number of blocks.
    pub fn marks(&self) -> usize {
        self.pages.iter().map(|page| page.marks).sum()
    }

    /// Writes the pages that change.
    pub fn write(&self) -> Outcome<()> {
        for page in self.pages.iter().filter(|page| !page.differing.is_empty()) {
            keep::replace(&page.path, &page.text)
                .map_err(|error| format!("{}: {error}", page.path.display()))?;
        }
        Ok(())
    }
}

impl Page {
    fn make(path: PathBuf, text: &str, reports: &[Named]) -> Result<Self, String> {
        let (mut made, mut end, mut marks) = (String::new(), 0, 0);
        let mut differing = Vec::new();
        for block in blocks(text)? {
            let Some((name, view)) = block.of else { continue };
            marks += 1;
            let named = reports.iter().find(|named| named.name == name).ok_or_else(|| {
                let names: Vec<_> = reports.iter().map(|named| named.name.as_str()).collect();
                format!("line {}: no report {name} among {}", block.line, names.join(", "))
            })?;
            let table = views::view(&named.report, named.before.as_ref(), view)
                .map_err(|why| format!("line {}: {name} {view}: {why}", block.line))?;
            if text[block.text.clone()] != table {
                differing.push(format!("{}:{}: {name} {view}", path.display(), block.line));
            }
            made += &text[end..block.text.start];
            made += &table;
            end = block.text.end;
        }
        made += &text[end..];
        Ok(Self { path, text: made, differing, marks })
    }
}

/// Finds the pages in a folder and below. What is hidden or built, and links, are left out.
fn markdown_files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if kind.is_dir() {
            markdown_files(&entry.path(), found)?;
        } else if kind.is_file() && name.ends_with(".md") {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_stands_between_two_lines() {
        let text = format!("a\n{BEGIN}\nold\n{END}\n{MARK} begin h200 all -->\n{END}");
        let found = blocks(&text).unwrap();
        assert_eq!(found.iter().map(|block| block.line).collect::<Vec<_>>(), [2, 5]);
        assert_eq!([found[0].of, found[1].of], [None, Some(("h200", "all"))]);
        assert_eq!([&text[found[0].text.clone()], &text[found[1].text.clone()]], ["old\n", ""]);
        let shown = format!("```\n{BEGIN}\n```\n    {BEGIN}\n`{END}`\n");
        assert_eq!(blocks(&shown).unwrap(), [], "marks that a page shows are none");
    }

    #[test]
    fn marks_that_do_not_fit_are_said_with_their_line() {
        for (text, says) in [
            (format!("{BEGIN}\n"), "line 1: no <!-- gpunet-bench: end --> after it"),
            (format!("{BEGIN}\n{BEGIN}\n{END}\n"), "line 1: no <!-- gpunet-bench: end --> before the next"),
            (format!("\n{END}\n"), "line 2: an end without a begin"),
            (format!("{MARK} begin h200 -->\n{END}\n"), "line 1: unknown mark"),
            (format!("{MARK} begin h200 all\n{END}\n"), "line 1: unknown mark"),
            (format!("{MARK} start -->\n"), "line 1: unknown mark"),
        ] {
            let why = blocks(&text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn a_page_names_reports_and_views_that_there_are() {
        let text = include_str!("../../tests/data/report.json");
        let reports =
            [Named { name: "h200".to_owned(), report: super::super::parse(text).unwrap(), before: None }];
        let page = |mark: &str| {
            let text = format!("{MARK} begin {mark} -->\nold\n{END}\nbelow\n");
            Page::make(PathBuf::from("page.md"), &text, &reports)
        };
        let made = page("h200 machine").unwrap();
        assert_eq!(made.differing, ["page.md:1: h200 machine"]);
        assert!(made.text.contains("32 x Intel") && made.text.ends_with("below\n"), "{}", made.text);
        let again = Page::make(PathBuf::new(), &made.text, &reports).unwrap();
        assert!(again.differing.is_empty() && again.text == made.text && again.marks == 1);
        for (mark, says) in [("h300 all", "no report h300 among h200"), ("h200 alll", "no view alll")] {
            let why = page(mark).map(|page| page.text).unwrap_err();
            assert!(why.starts_with("line 1: ") && why.contains(says), "{why}");
        }
    }

    /// A table that someone changed by hand, or a report that was replaced without its tables.
    #[test]
    fn the_documents_are_what_render_makes_of_their_reports() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let measured = std::fs::read_dir(repository.join("docs/measured")).unwrap();
        let paths = measured.map(|entry| entry.unwrap().path());
        let reports: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        let documents = Documents::read(&repository, &Named::read(&reports).unwrap()).unwrap();
        let differing: Vec<_> = documents.differing().collect();
        assert!(
            differing.is_empty(),
            "gpunet-bench render docs/measured/*.json --docs . makes others of:\n{}",
            differing.join("\n")
        );
        assert!(documents.marks() >= 3, "{} tables are made from reports", documents.marks());
    }
}
