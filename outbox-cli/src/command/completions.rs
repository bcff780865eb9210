use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::print_text;

pub(crate) fn run(shell: Shell) -> Result<Exit, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "outbox", &mut script);
    print_text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
