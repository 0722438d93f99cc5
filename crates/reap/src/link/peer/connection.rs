//! The connection that the threads of this process share to reach a server, and what they reach by it alone: registers and doorbells that are not
//! mapped.

use std::sync::{Arc, PoisonError, RwLock};

use ::vfio_user::{Client, region};
use hw::vfio::RegisterCalls;

/// The connection to a server. Once it is over another one can take its place.
#[derive(Debug)]
pub(super) struct Connection(RwLock<Arc<Client>>);

impl Connection {
    pub(super) fn new(client: Client) -> Connection {
        Connection(RwLock::new(Arc::new(client)))
    }

    /// The one that there is now.
    pub(super) fn client(&self) -> Arc<Client> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn replace(&self, client: Arc<Client>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = client;
    }
}

/// BAR0 where it is not mapped.
#[derive(Debug)]
pub(super) struct Bar0(pub(super) Arc<Connection>);

impl RegisterCalls for Bar0 {
    fn load(&self, offset: u32) -> u32 {
        let mut word = [0xff; 4];
        match self.0.client().read(region::BAR0, offset.into(), &mut word) {
            Ok(()) => u32::from_le_bytes(word),
            Err(_) => u32::MAX,
        }
    }

    /// Nobody waits for it: a doorbell.
    #[inline]
    fn store(&self, offset: u32, value: u32) {
        self.0.client().post_write(region::BAR0, offset.into(), value);
    }
}
