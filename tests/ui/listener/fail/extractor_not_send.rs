//@ error at: Local
#![allow(unused)]

use std::rc::Rc;

use outbox::ListenerResult;
use outbox::listener::{Delivery, FromDelivery};

struct Local(Rc<u8>);

impl FromDelivery for Local {
    async fn from_delivery(_: &Delivery) -> ListenerResult<Self> {
        Ok(Self(Rc::new(1)))
    }
}

fn main() {}
