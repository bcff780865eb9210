use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::Error;
use crate::store::{Backend, DeadEvent, DeadFilter, Store};

/// The number of dead letters that are read at once; small, because a payload may have a megabyte.
pub(super) const PAGE: u32 = 50;

/// A stream of dead letters, oldest first, made by [`DeadEvents::stream`](super::DeadEvents::stream).
///
/// It implements `futures_core::Stream`, so `StreamExt` of `futures` or `tokio-stream` has its combinators. It reads
/// pages of 50, because a payload may have a megabyte, and keeps no transaction or connection between them. After an
/// error it can be polled again, and continues where it was. Events that become dead while it runs may be included.
///
/// ```no_run
/// use futures_core::Stream;
/// use outbox::dead::DeadFilter;
/// use std::pin::pin;
///
/// # async fn example(outbox: outbox::Outbox<sqlx::Postgres>) -> outbox::Result<()> {
/// let mut dead = pin!(outbox.dead_events().stream(DeadFilter::new().tenant("acme")));
/// // With `StreamExt`, this is `dead.next().await`.
/// while let Some(dead) = std::future::poll_fn(|context| dead.as_mut().poll_next(context)).await {
///     let dead = dead?;
///     println!("{} {}", dead.event_id, dead.last_error.unwrap_or_default());
/// }
/// # Ok(())
/// # }
/// ```
pub struct DeadStream<DB: Backend> {
    store: Store<DB>,
    filter: DeadFilter,
    after: i64,
    ready: VecDeque<DeadEvent>,
    reading: Option<Reading>,
    exhausted: bool,
}

type Reading = Pin<Box<dyn Future<Output = Result<Vec<DeadEvent>, Error>> + Send>>;

impl<DB: Backend> fmt::Debug for DeadStream<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadStream").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl<DB: Backend> DeadStream<DB> {
    pub(super) fn new(store: Store<DB>, filter: DeadFilter) -> Self {
        let (ready, reading) = (VecDeque::new(), None);
        Self { store, filter, after: 0, ready, reading, exhausted: false }
    }

    fn read(&self) -> Reading {
        let (store, filter, after) = (self.store.clone(), self.filter.events.clone(), self.after);
        Box::pin(async move { store.dead(&filter, after, PAGE).await })
    }
}

impl<DB: Backend> Stream for DeadStream<DB> {
    type Item = Result<DeadEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(dead) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(dead)));
            }
            if this.exhausted {
                return Poll::Ready(None);
            }
            let reading = match &mut this.reading {
                Some(reading) => reading,
                None => {
                    let reading = this.read();
                    this.reading.insert(reading)
                }
            };
            let read = ready!(reading.as_mut().poll(context));
            this.reading = None;
            match read {
                Ok(page) => {
                    this.exhausted = page.is_empty();
                    this.after = page.last().map_or(this.after, |last| last.sequence);
                    let matching = page.into_iter().filter(|dead| this.filter.matches_cause(dead));
                    this.ready.extend(matching);
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
