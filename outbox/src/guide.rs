#![cfg_attr(not(doctest), doc = include_str!("links.md"))]
#![doc = include_str!("../docs/README.md")]

// The pages are files in `docs`, which is also readable on GitHub. Their links are references (`[Writing][writing]`),
// defined at the end of each file as paths of files. `links.md` comes first and defines the same names as paths of
// modules: the first definition counts, so that the links work in both places.

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/events.md")]
pub mod events {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/listeners.md")]
pub mod listeners {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/writing.md")]
pub mod writing {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/delivery.md")]
pub mod delivery {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/subscriptions.md")]
pub mod subscriptions {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/ordering.md")]
pub mod ordering {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/configuration.md")]
pub mod configuration {}

// Its examples need this feature.
#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[cfg_attr(any(not(doctest), feature = "sqlite"), doc = include_str!("../docs/several-outboxes.md"))]
pub mod several_outboxes {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/adopting.md")]
pub mod adopting {}

// Its example needs this feature.
#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[cfg_attr(any(not(doctest), feature = "metrics"), doc = include_str!("../docs/metrics.md"))]
pub mod metrics {}

// Its examples need these features.
#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[cfg_attr(
    any(not(doctest), all(feature = "postgres", feature = "sqlite", feature = "testing")),
    doc = include_str!("../docs/testing.md")
)]
pub mod testing {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/troubleshooting.md")]
pub mod troubleshooting {}

#[cfg_attr(not(doctest), doc = include_str!("links.md"))]
#[doc = include_str!("../docs/glossary.md")]
pub mod glossary {}
