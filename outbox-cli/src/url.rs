//! Finds the database URL. It may contain a password, which is visible to other users on the command line.

use std::io::Read;
use std::path::Path;

use crate::args::Global;
use crate::fault::Fault;
use crate::output::warn;

const ENV_VAR: &str = "DATABASE_URL";

/// Returns the URL from `--url`, from `--url-file`, or from the environment, in this order.
pub(crate) fn resolve(global: &Global) -> Result<String, Fault> {
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
    std::env::var(ENV_VAR).map_err(|_| {
        Fault::usage(
            "no database URL",
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
    let remedy = "it must contain the URL and nothing else";
    match text {
        Ok(text) if text.trim().is_empty() => {
            Err(Fault::usage(format!("{name} contains no URL"), remedy))
        }
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => {
            Err(Fault::usage(format!("cannot read the URL from {name}: {error}"), remedy))
        }
    }
}

/// Returns whether a URL may contain a password.
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
    fn a_password_is_recognised_in_any_position() {
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
