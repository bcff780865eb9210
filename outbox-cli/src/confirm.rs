//! Nothing that is hard to undo happens unasked.

use std::io::{BufRead, IsTerminal, Write};

use crate::fault::Fault;

/// Goes on only if somebody has said yes: in the command, or now at the terminal.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Fault> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    // Both ways: a question that goes to a file is not seen.
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Fault::usage(
            format!("this needs a yes ({question}), and there is no terminal to ask at"),
            "add `--yes` to do it, or `--dry-run` to look at it only; nothing was changed",
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
