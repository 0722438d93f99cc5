//! Requests that are out, and which of them an answer belongs to.

use std::collections::HashMap;

use crate::bytes::Malformed;
use crate::header::Header;

/// What was asked and is not answered yet: by identifier, each with something of the caller's.
#[derive(Debug)]
pub struct Calls<T> {
    next: u16,
    open: HashMap<u16, (u16, T)>,
}

impl<T> Default for Calls<T> {
    fn default() -> Calls<T> {
        Calls { next: 0, open: HashMap::new() }
    }
}

impl<T> Calls<T> {
    /// Requests that may be out at a time.
    pub const MOST: usize = 1024;

    /// A request of this command goes out: its identifier, which none has that is out. `None`: too many are.
    pub fn begin(&mut self, command: u16, caller: T) -> Option<u16> {
        if self.open.len() >= Calls::<T>::MOST {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.open.contains_key(&self.next) {
                break;
            }
        }
        self.open.insert(self.next, (command, caller));
        Some(self.next)
    }

    /// An answer has come.
    ///
    /// # Errors
    /// Nothing of that identifier is out, or it was another command.
    pub fn answered(&mut self, header: &Header) -> Result<T, Malformed> {
        let Some((command, caller)) = self.open.remove(&header.id) else { return Err(Malformed::Unasked { id: header.id }) };
        if command != header.command {
            return Err(Malformed::Field { what: "command of an answer", value: header.command.into() });
        }
        Ok(caller)
    }

    /// The caller of a request that is still out.
    pub fn caller(&mut self, id: u16) -> Option<&mut T> {
        self.open.get_mut(&id).map(|(_, caller)| caller)
    }

    /// No answer comes any more.
    pub fn end(&mut self) -> Vec<T> {
        self.open.drain().map(|(_, (_, caller))| caller).collect()
    }
}

#[cfg(test)]
mod tests;
