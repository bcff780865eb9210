use super::{Backend, Store};
use crate::Error;

impl<DB: Backend> Store<DB> {
    /// Returns how many connections this user may have open to the server, in all processes; `None` if there is no
    /// server.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn connection_limit(&self) -> Result<Option<u32>, Error> {
        let Some(limit) = &self.sql.connection_limit else { return Ok(None) };
        let limit = self.number("checking the database", limit.clone(), vec![]).await?;
        Ok(limit.and_then(|limit| u32::try_from(limit).ok()))
    }

    /// Returns whether a connection of the pool is encrypted, as the server sees it; `None` if there is no network.
    /// Behind a connection pooler this is the connection from there to the server.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn is_encrypted(&self) -> Result<Option<bool>, Error> {
        let Some(encrypted) = &self.sql.encrypted else { return Ok(None) };
        let answer = self.number("checking the connection", encrypted.clone(), vec![]).await?;
        Ok(Some(answer == Some(1)))
    }

    /// Returns whether the database is in the memory of this process, so that only one connection can use it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn is_in_memory(&self) -> Result<bool, Error> {
        match &self.sql.in_memory {
            Some(test) => {
                Ok(self.number("checking the database", test.clone(), vec![]).await? == Some(1))
            }
            None => Ok(false),
        }
    }

    /// Returns whether the database can notify other nodes of new events.
    pub fn can_notify(&self) -> bool {
        self.sql.notify.is_some()
    }

    /// Notifies the nodes that listen for events of this table.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn notify(&self) -> Result<(), Error> {
        match &self.sql.notify {
            Some(sql) => {
                let args = vec![self.channel().into()];
                self.rows("notifying other nodes", sql.clone(), args).await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// Calls `heard` on every notification, until the connection fails or reaches the maximum lifetime of the pool.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn listen(&self, heard: &(dyn Fn() + Send + Sync)) -> Result<(), Error> {
        self.follow_application();
        let listening = DB::listen(&self.pool, &self.channel(), heard).await;
        listening.map_err(Error::database("listening for other nodes"))
    }

    fn channel(&self) -> String {
        self.table.derived("wake")
    }
}
