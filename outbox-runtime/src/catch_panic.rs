//! Turns panics of user code into values.
//!
//! `catch_unwind` returns what was thrown, but not from where: only the panic hook sees that. So a hook of ours runs
//! before the application's and records the place, on the thread that panics, and only while that thread runs code
//! that is caught here. If the application replaces the hook later, the place is not known.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::Poll;

/// A panic that was caught.
#[derive(Debug)]
pub(crate) struct Panic {
    /// File and line, if they are known.
    place: Option<String>,
    /// The panic's message, if it has one.
    text: Option<String>,
}

/// How much of a panic is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PanicDetail {
    Place,
    /// The message as well, which may contain anything.
    PlaceAndText,
}

impl Panic {
    /// Completes a sentence with what is known: "it panicked at src/main.rs:7: no such order".
    pub(crate) fn describe(&self, sentence: &str, detail: PanicDetail) -> String {
        let mut description = sentence.to_owned();
        if let Some(place) = &self.place {
            let _ = write!(description, " at {place}");
        }
        if let (PanicDetail::PlaceAndText, Some(text)) = (detail, &self.text) {
            let _ = write!(description, ": {text}");
        }
        description
    }

    /// Returns file and line, if they are known.
    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }
}

/// Runs a function, and returns an error if it panics.
pub(crate) fn catch<T>(function: impl FnOnce() -> T) -> Result<T, Panic> {
    let scope = Scope::enter();
    let result = catch_unwind(AssertUnwindSafe(function));
    let record = scope.leave();
    result.map_err(|thrown| panic_from(&*thrown, record))
}

/// Runs a future, and returns an error if it panics.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, Panic> {
    let mut future = pin!(future);
    poll_fn(|context| match catch(|| future.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// Installs the panic hook, once for the process.
pub(crate) fn install_hook() {
    static INSTALLED: Once = Once::new();
    if std::thread::panicking() {
        // The hook cannot be changed now.
        return;
    }
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            record(info);
            previous(info);
        }));
    });
}

/// What the hook has seen of a panic.
#[derive(Debug)]
struct Record {
    place: String,
    text: Option<String>,
}

/// Whether this thread runs code whose panics are caught, and the last one if there was any.
#[derive(Debug)]
enum Recording {
    Off,
    On(Option<Record>),
}

thread_local! {
    static RECORDING: RefCell<Recording> = const { RefCell::new(Recording::Off) };
}

/// Sets the recording of this thread, and returns what it was.
fn set(recording: Recording) -> Recording {
    let set = |local: &RefCell<Recording>| {
        local.try_borrow_mut().map(|mut local| std::mem::replace(&mut *local, recording))
    };
    // A thread that ends has no recording any more.
    RECORDING.try_with(set).ok().and_then(Result::ok).unwrap_or(Recording::Off)
}

/// Records panics on this thread. Scopes may be nested: the outer one continues where it was.
struct Scope {
    outer: Recording,
}

impl Scope {
    fn enter() -> Self {
        Self { outer: set(Recording::On(None)) }
    }

    fn leave(self) -> Option<Record> {
        match set(self.outer) {
            Recording::On(record) => record,
            Recording::Off => None,
        }
    }
}

fn record(info: &PanicHookInfo<'_>) {
    let Some(location) = info.location() else { return };
    let _ = RECORDING.try_with(|local| {
        if let Ok(mut local) = local.try_borrow_mut()
            && let Recording::On(record) = &mut *local
        {
            let place = format!("{}:{}", location.file(), location.line());
            let text = info.payload_as_str().map(str::to_owned);
            *record = Some(Record { place, text });
        }
    });
}

/// Joins what was thrown with what the hook has recorded. The last panic that the hook saw may be another one, which
/// the caught code has caught itself.
fn panic_from(thrown: &(dyn Any + Send), record: Option<Record>) -> Panic {
    let text = thrown.downcast_ref::<&str>().copied();
    let text = text.or_else(|| thrown.downcast_ref::<String>().map(String::as_str));
    let same = record.filter(|record| record.text.as_deref() == text);
    Panic { place: same.map(|record| record.place), text: text.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes the panic of a function.
    fn described(function: impl FnOnce()) -> String {
        install_hook();
        catch(function).unwrap_err().describe("it panicked", PanicDetail::PlaceAndText)
    }

    /// Returns the place of a line of this file.
    fn place(line: u32) -> String {
        format!("{}:{line}", file!())
    }

    #[test]
    fn a_panic_has_its_place_and_its_text() {
        let line = line!() + 1;
        let text = described(|| panic!("no order {}", 7));
        assert_eq!(text, format!("it panicked at {}: no order 7", place(line)));
        let line = line!() + 1;
        let text = described(|| std::panic::panic_any(7_u8));
        assert_eq!(text, format!("it panicked at {}", place(line)), "there is no text");
    }

    #[test]
    fn the_text_can_be_left_out() {
        install_hook();
        let line = line!() + 1;
        let panic = catch(|| panic!("card 4111")).unwrap_err();
        let text = panic.describe("it panicked", PanicDetail::Place);
        assert_eq!(text, format!("it panicked at {}", place(line)));
    }

    #[test]
    fn a_panic_that_the_code_has_caught_itself_is_another_one() {
        let text = described(|| {
            let _ = catch_unwind(|| panic!("inner"));
            std::panic::resume_unwind(Box::new("outer"));
        });
        assert_eq!(text, "it panicked: outer", "no hook has seen it");
        let line = line!() + 2;
        let text = described(|| {
            let inner = catch_unwind(|| panic!("inner")).unwrap_err();
            std::panic::resume_unwind(inner);
        });
        assert_eq!(text, format!("it panicked at {}: inner", place(line)));
    }

    #[test]
    fn the_panic_of_another_thread_is_not_recorded() {
        let text = described(|| {
            let thread = std::thread::spawn(|| panic!("elsewhere"));
            let thrown = thread.join().unwrap_err();
            std::panic::resume_unwind(thrown);
        });
        assert_eq!(text, "it panicked: elsewhere");
    }

    #[test]
    fn scopes_can_be_nested() {
        /// Catches a panic while it is dropped.
        struct CatchesWhenDropped;

        impl Drop for CatchesWhenDropped {
            fn drop(&mut self) {
                catch(|| panic!("while dropping")).unwrap_err();
            }
        }

        let line = line!() + 4;
        let text = described(|| {
            let _guard = CatchesWhenDropped;
            catch(|| panic!("before")).unwrap_err();
            panic!("outer");
        });
        assert_eq!(text, format!("it panicked at {}: outer", place(line)));
    }

    #[test]
    fn nothing_is_recorded_outside_of_a_scope() {
        install_hook();
        let _ = catch_unwind(|| panic!("x"));
        assert!(matches!(set(Recording::Off), Recording::Off));
        catch(|| panic!("x")).unwrap_err();
        assert!(matches!(set(Recording::Off), Recording::Off), "the scope has ended");
    }

    #[tokio::test]
    async fn a_future_is_caught_whichever_thread_polls_it() {
        install_hook();
        let line = line!() + 3;
        let future = catch_panic(async {
            tokio::task::yield_now().await;
            panic!("late");
        });
        let panic: Panic = Result::<(), Panic>::unwrap_err(future.await);
        assert_eq!(panic.place(), Some(place(line).as_str()));
    }
}
