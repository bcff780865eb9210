//! Where the database's URL comes from. It may hold a password, and the command line is no place for one.

use std::io::Read;
use std::path::Path;

use crate::args::Global;
use crate::fault::Fault;
use crate::output::warn;

const VARIABLE: &str = "DATABASE_URL";

/// The URL that was given: in the command, in a file, or in the environment.
pub(crate) fn given(global: &Global) -> Result<String, Fault> {
    if let Some(url) = &global.url {
        if has_password(url) {
            warn(
                "other users of this machine can read the password in `--url` (`ps`)",
                "set DATABASE_URL instead, or give `--url-file`",
            );
        }
        return Ok(url.clone());
    }
    if let Some(path) = &global.url_file {
        return read(path);
    }
    std::env::var(VARIABLE).map_err(|_| {
        Fault::usage(
            "no database is named",
            "give `--url` or `--url-file`, or set DATABASE_URL: sqlite:shop.db, postgres://user@host/shop, \
             mysql://user@host/shop",
        )
    })
}

fn read(path: &Path) -> Result<String, Fault> {
    let (text, name) = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            (read.map(|_| text), "standard input".to_owned())
        }
        _ => (std::fs::read_to_string(path), path.display().to_string()),
    };
    let remedy = "it holds the URL and nothing else";
    match text {
        Ok(text) if text.trim().is_empty() => {
            Err(Fault::usage(format!("there is no URL in {name}"), remedy))
        }
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => {
            Err(Fault::usage(format!("the URL cannot be read from {name}: {error}"), remedy))
        }
    }
}

/// Whether something in a URL may be a password.
fn has_password(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    if scheme == "sqlite" {
        return false;
    }
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
        || rest.contains("password=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_recognised_wherever_it_stands() {
        for url in [
            "postgres://ada:pw@db/shop",
            "postgres://ada:p@w@db/shop",
            "mysql://ada:pw@db:3306/shop?ssl-mode=required",
            "postgres://db/shop?user=ada&password=pw",
            "oracle://ada:pw@db/shop",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "postgres://ada@db/shop",
            "postgres://ada:@db/shop",
            "postgres://db:5432/shop",
            "mysql://[::1]:3306/shop",
            "sqlite:shop:1@2.db",
            "sqlite://shop.db",
            "",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }
}
