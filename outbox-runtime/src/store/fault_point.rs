//! Where a test can have the connection fail. Without the feature `testing` there is nothing here.

/// Evaluates an expression that talks to the database, or what a test has in its place. Not a function,
/// for the reason of [`retrying`](super::contention::retrying).
#[cfg(feature = "testing")]
macro_rules! fault_point {
    ($store:expr, $point:ident => $work:expr) => {
        match $store.meet($crate::store::fault::Point::$point).await {
            Ok(answer) => answer.to($work),
            Err(error) => Err(error),
        }
    };
}

#[cfg(not(feature = "testing"))]
macro_rules! fault_point {
    ($store:expr, $point:ident => $work:expr) => {
        $work
    };
}

pub(super) use fault_point;
