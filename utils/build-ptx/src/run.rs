//! Runs other programs, with one error for every way they can fail.

use std::process::{Command, Output};

/// Why a program that this tool needs did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// Program name.
        program: String,
        /// What the system said.
        r#source: std::io::Error,
    },
    /// The program ended with a failure.
    #[error("`{program}` failed ({status}):\n{stderr}")]
    Failed {
        /// Program name.
        program: String,
        /// Exit status in words.
        status: String,
        /// The last lines of its standard error.
        stderr: String,
    },
}

/// Runs `command` to its end and returns its output if it succeeded.
///
/// # Errors
/// The program cannot be started, or exits with a failure.
pub fn output(command: &mut Command) -> Result<Output, RunError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| RunError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(output);
    }
    Err(RunError::Failed { program, status: output.status.to_string(), stderr: tail(&output.stderr) })
}

/// As [`output`], and returns standard output as text.
///
/// # Errors
/// As [`output`].
pub fn stdout(command: &mut Command) -> Result<String, RunError> {
    output(command).map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs `command` with the caller's standard output and error, so that a person sees its progress.
///
/// # Errors
/// As [`output`]; the program's own messages are already on the terminal.
pub fn visible(command: &mut Command) -> Result<(), RunError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|source| RunError::Start { program: program.clone(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(RunError::Failed { program, status: status.to_string(), stderr: "(see its messages above)".into() })
}

fn tail(stderr: &[u8]) -> String {
    const LINES: usize = 15;
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
