//! Confirmation of operations that are hard to undo.

use std::io::{BufRead, IsTerminal, Write};

use crate::fault::Fault;

/// Returns `Ok` if `--yes` was given or the user confirms at the terminal.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Fault> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    // Both are required: a question redirected to a file is not seen.
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Fault::usage(
            format!("confirmation required ({question}), but there is no terminal to ask on"),
            "add `--yes` to confirm; nothing was changed",
        ));
    }
    let _ = write!(anstream::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Fault::failed("not confirmed", "nothing was changed"))
}
