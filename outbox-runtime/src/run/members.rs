//! The outboxes of a group: from a tuple of builders to a tuple of handles, with their types.

use std::fmt;

use super::outboxes::RunningMember;
use super::start::Candidate;
use super::{Builder, Mode, Outbox};
use crate::Error;
use crate::dispatch::SharedWorkers;
use crate::error::{StartError, StartFault};
use crate::listener::{BoxFuture, LinkedFor};
use crate::store::Backend;

/// The builders of a group: a [`Builder`], or a tuple or `Vec` of them, of any databases.
///
/// A tuple has up to eight parts, and each part may be a tuple or a `Vec` again. [`Handles`](Self::Handles) has the same
/// form, with an [`Outbox`] in place of each builder. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a builder or a collection of builders",
    label = "expected a tuple or `Vec` of builders that are not started yet",
    note = "pass builders without `.start()`: `outbox::group((outbox::builder(a).name(\"a\"), \
            outbox::builder(b).name(\"b\")))`; a tuple can contain up to eight of them, and other tuples"
)]
pub trait OutboxBuilders: sealed::Sealed {
    /// The handles of the running outboxes: `(Outbox<A>, Outbox<B>)` for `(Builder<A>, Builder<B>)`.
    type Handles: Send;

    #[doc(hidden)]
    type Candidates: Candidates<Handles = Self::Handles>;

    #[doc(hidden)]
    fn into_candidates(self) -> Self::Candidates;
}

/// Outboxes that are being started together.
#[doc(hidden)]
pub trait Candidates: Send {
    type Handles: Send;

    /// Adds each of them to a list, in order.
    fn list<'a>(&'a mut self, members: &mut MemberList<'a>);

    /// Starts one after the other, paused. Those that are running, also if a later one fails, are added to a list.
    fn launch(
        self,
        running: &mut Vec<RunningMember>,
    ) -> impl Future<Output = Result<Self::Handles, Vec<StartFault>>> + Send;
}

/// The outboxes of a group, whatever their databases are.
#[doc(hidden)]
#[derive(Default)]
pub struct MemberList<'a>(pub(super) Vec<&'a mut dyn Member>);

impl fmt::Debug for MemberList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|member| member.name())).finish()
    }
}

/// An outbox that is being started in a group, whatever its database is.
pub(super) trait Member: Send {
    fn name(&self) -> Option<&str>;
    fn table(&self) -> &str;
    fn linked_for(&self) -> Option<&LinkedFor>;
    fn faults(&mut self) -> &mut Vec<StartFault>;
    /// Returns whether it calls listeners.
    fn has_workers(&self) -> bool;
    fn share_workers(&mut self, workers: SharedWorkers);
    fn prepare(&mut self, may_migrate: bool) -> BoxFuture<'_, ()>;
    fn register(&mut self) -> BoxFuture<'_, ()>;
}

impl<DB: Backend> Member for Candidate<DB> {
    fn name(&self) -> Option<&str> {
        self.builder.name.as_deref()
    }

    fn table(&self) -> &str {
        &self.builder.config.table
    }

    fn linked_for(&self) -> Option<&LinkedFor> {
        self.linked_for.as_ref()
    }

    fn faults(&mut self) -> &mut Vec<StartFault> {
        &mut self.faults
    }

    fn has_workers(&self) -> bool {
        self.builder.handler.is_none() && self.builder.config.mode != Mode::WriterOnly
    }

    fn share_workers(&mut self, workers: SharedWorkers) {
        // More would only wait, and the fairness between listeners counts workers that can be used.
        let config = &mut self.builder.config;
        config.workers = config.workers.min(workers.most());
        self.builder.shared_workers = Some(workers);
    }

    fn prepare(&mut self, may_migrate: bool) -> BoxFuture<'_, ()> {
        Box::pin(self.prepare(may_migrate))
    }

    fn register(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.register())
    }
}

impl<DB: Backend> OutboxBuilders for Builder<DB> {
    type Handles = Outbox<DB>;
    // Boxed: the future of a group contains all of them, several times.
    type Candidates = Box<Candidate<DB>>;

    fn into_candidates(self) -> Box<Candidate<DB>> {
        Box::new(Candidate::new(self))
    }
}

impl<DB: Backend> Candidates for Box<Candidate<DB>> {
    type Handles = Outbox<DB>;

    fn list<'a>(&'a mut self, members: &mut MemberList<'a>) {
        members.0.push(&mut **self);
    }

    async fn launch(
        mut self,
        running: &mut Vec<RunningMember>,
    ) -> Result<Outbox<DB>, Vec<StartFault>> {
        self.builder.start_paused = true;
        let name = self.builder.name.clone();
        match Box::pin((*self).launch()).await {
            Ok(outbox) => {
                running.push(RunningMember::new(name, outbox.clone()));
                Ok(outbox)
            }
            Err(Error::Start(error)) => Err(error.into_faults_of(name.as_deref())),
            Err(error) => {
                let error = StartError::new(vec![StartFault::Database(Box::new(error))]);
                Err(error.into_faults_of(name.as_deref()))
            }
        }
    }
}

impl<B: OutboxBuilders> OutboxBuilders for Vec<B> {
    type Handles = Vec<B::Handles>;
    type Candidates = Vec<B::Candidates>;

    fn into_candidates(self) -> Self::Candidates {
        self.into_iter().map(B::into_candidates).collect()
    }
}

impl<C: Candidates> Candidates for Vec<C> {
    type Handles = Vec<C::Handles>;

    fn list<'a>(&'a mut self, members: &mut MemberList<'a>) {
        self.iter_mut().for_each(|candidates| candidates.list(members));
    }

    async fn launch(
        self,
        running: &mut Vec<RunningMember>,
    ) -> Result<Self::Handles, Vec<StartFault>> {
        let mut handles = Vec::with_capacity(self.len());
        for candidates in self {
            handles.push(candidates.launch(running).await?);
        }
        Ok(handles)
    }
}

macro_rules! tuples {
    ($($builders:ident)*) => {
        impl<$($builders: OutboxBuilders),*> OutboxBuilders for ($($builders,)*) {
            type Handles = ($($builders::Handles,)*);
            type Candidates = ($($builders::Candidates,)*);

            fn into_candidates(self) -> Self::Candidates {
                #[expect(non_snake_case, reason = "the value of a type is named like it")]
                let ($($builders,)*) = self;
                ($($builders.into_candidates(),)*)
            }
        }

        impl<$($builders: Candidates),*> Candidates for ($($builders,)*) {
            type Handles = ($($builders::Handles,)*);

            fn list<'a>(&'a mut self, members: &mut MemberList<'a>) {
                #[expect(non_snake_case, reason = "the value of a type is named like it")]
                let ($($builders,)*) = self;
                $($builders.list(members);)*
            }

            async fn launch(
                self,
                running: &mut Vec<RunningMember>,
            ) -> Result<Self::Handles, Vec<StartFault>> {
                #[expect(non_snake_case, reason = "the value of a type is named like it")]
                let ($($builders,)*) = self;
                // A tuple is evaluated from left to right.
                Ok(($($builders.launch(running).await?,)*))
            }
        }

        impl<$($builders: sealed::Sealed),*> sealed::Sealed for ($($builders,)*) {}
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);

mod sealed {
    use super::{Backend, Builder};

    pub trait Sealed {}

    impl<DB: Backend> Sealed for Builder<DB> {}
    impl<B: Sealed> Sealed for Vec<B> {}
}
