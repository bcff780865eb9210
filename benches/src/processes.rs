//! CPU time of processes, from `/proc`.

use std::fs;
use std::time::Duration;

use crate::Result;

/// The length of a clock tick. It is the same on every Linux that Rust supports.
const TICK: Duration = Duration::from_millis(10);

/// The times in a `stat` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Of the process itself, in ticks.
    own: u32,
    /// Of its children that have ended, in ticks.
    ended_children: u32,
}

/// Returns the CPU time of this process, in user mode and in the kernel.
pub(crate) fn own_time() -> Result<Duration> {
    let stat =
        parse(&fs::read_to_string("/proc/self/stat")?).ok_or("/proc/self/stat is unreadable")?;
    Ok(TICK * stat.own)
}

/// Returns the parent of a process.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    Some(read(process)?.parent)
}

/// Returns the CPU time of a process and of all its children, including those that have ended.
pub(crate) fn family_time(parent: u32) -> Option<Duration> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end at any time; its parent then has its ticks.
        if let Some(stat) = read(process).filter(|stat| stat.parent == parent) {
            ticks += stat.own;
        }
    }
    let stat = read(parent)?;
    Some(TICK * (ticks + stat.own + stat.ended_children))
}

fn read(process: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Parses a `stat` file. The name of the program, in parentheses, may contain spaces and parentheses.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(Stat {
        parent: number(1)?,
        own: number(11)? + number(12)?,
        ended_children: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_file() {
        let text =
            "42 (postgres: (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 5000 600 20 0 1 0 99";
        assert_eq!(parse(text), Some(Stat { parent: 7, own: 120, ended_children: 5_600 }));
        assert_eq!(parse("42 (postgres) S 7"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_own_process_has_a_parent() {
        assert!(own_time().is_ok());
        let parent = parent_of(std::process::id()).unwrap();
        assert!(family_time(parent).unwrap() >= own_time().unwrap());
    }
}
