//! Redacts database URLs for messages: nothing that could be a password remains.

/// Returns scheme, host, port and database of a URL.
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return "the URL".to_owned() };
    if scheme == "sqlite" {
        // A file name contains no password.
        return format!("sqlite:{}", rest.split('?').next().unwrap_or_default());
    }
    let scheme: String = scheme.chars().take_while(|letter| is_plain(*letter)).collect();
    let rest = rest.trim_start_matches('/');
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let address = match (before.rsplit_once('@'), query.contains('@')) {
        (Some((_, address)), false) => address,
        (None, false) => before,
        // It is unknown where the password ends.
        (_, true) => return format!("{scheme}://…"),
    };
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let (host, port) = match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            (name, format!(":{port}"))
        }
        // A port that is not a number may be a password in a URL without a host.
        Some((name, _)) if !name.starts_with('[') => (name, String::new()),
        _ => (host, String::new()),
    };
    let path: String = path.chars().take_while(|letter| is_plain(*letter)).collect();
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{host}{port}{slash}{path}")
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_scheme_host_port_and_database() {
        for (url, expected) in [
            ("postgres://ada@db.example:5433/shop", "postgres://db.example:5433/shop"),
            ("mysql://root:pw@[::1]:3306/shop?ssl-mode=disabled", "mysql://[::1]:3306/shop"),
            ("postgres://db/shop", "postgres://db/shop"),
            ("sqlite:data/shop.db?mode=rwc", "sqlite:data/shop.db"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("nonsense", "the URL"),
            ("sqliteé:shop.db", "sqlite://shop.db"),
        ] {
            assert_eq!(redacted(url), expected, "{url}");
        }
    }

    #[test]
    fn no_url_shows_its_password() {
        for url in [
            "postgres://ada:SECRET@db/shop",
            "postgres://ada:x@SECRET@db/shop",
            "postgres://ada:SECRET/x@db/shop",
            "postgres://ada:SECRET?x@db/shop",
            "postgres://ada:SECRET#x@db/shop",
            "postgres://ada:SECRET",
            "postgres://ada:SECRET/shop",
            "postgres://db/shop?user=ada&password=SECRET",
            "postgres://db/shop?password=x@SECRET",
            "postgres://ada@db/shop?password=x@SECRET",
            "postgres:ada:SECRET@db/shop",
        ] {
            assert!(!redacted(url).contains("SECRET"), "{url}: {}", redacted(url));
        }
    }
}
