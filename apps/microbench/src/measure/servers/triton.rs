//! An echo server that is a Triton kernel, beside a Python program that copies what it receives to
//! the GPU and back.

use super::{Server, table};
use crate::foreign::triton;
use crate::measure::{Run, echo_round_trips};
use crate::outcome::Outcome;
use crate::report::{Role, Row};

/// Measures round trips of one client.
pub fn measure(run: &mut Run<'_>) -> Outcome<()> {
    table(run, "echo servers in Python: 64 B round trip of one client", 2)?;
    let program = match triton::Program::find(run.device, run.recorder.without_foreign) {
        Ok(program) => program,
        Err(why) => {
            run.recorder.note(format!("without Triton: {why}"));
            return Ok(());
        }
    };
    let servers = [
        (Role::Reference, "host", "Python, torch copies to the GPU and back"),
        (Role::Gpunet, "kernel", "a Triton kernel"),
    ];
    for (role, which, name) in servers {
        let measured = Server::start(&mut program.command(which))
            .and_then(|server| echo_round_trips(server.addr, run.effort.of(2000, 10_000, 50_000)));
        match measured {
            Ok(samples) => run.recorder.row(Row::times(role, name, &samples).at(name, 1)),
            Err(error) => run.recorder.note(format!("without {name}: {error}: {}", program.complaint())),
        }
    }
    Ok(())
}
