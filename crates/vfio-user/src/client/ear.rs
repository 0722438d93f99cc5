//! The thread that hears the server: answers go to those who asked, requests for memory are served, and what was owed is sent when there is room.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::shared::{Caller, End, MOST_DATA, Shared};
use crate::assembler::Message;
use crate::dma::DmaAsk;
use crate::header::{Flags, Header};
use crate::socket::{Received, Socket};

/// Messages that are heard before the socket's other direction has its turn.
const MESSAGES: usize = 64;

pub(super) struct Ear {
    shared: Arc<Shared>,
    socket: Socket,
    wake: OwnedFd,
}

impl Ear {
    pub(super) fn new(shared: Arc<Shared>, socket: Socket, wake: OwnedFd) -> Ear {
        Ear { shared, socket, wake }
    }

    /// Until the connection is over.
    pub(super) fn run(mut self) {
        let end = loop {
            if self.shared.ended.load(std::sync::atomic::Ordering::Acquire) {
                return;
            }
            match self.turn() {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        self.shared.end(end);
    }

    /// Sleeps until there is something, and deals with it.
    fn turn(&mut self) -> Result<(), End> {
        let owes = self.shared.out().owes();
        let looked_for = if owes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&self.socket, looked_for), PollFd::new(&self.wake, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(End::System(errno.to_string())),
        }
        let (heard, woken) = (fds[0].revents(), fds[1].revents());
        if !woken.is_empty() {
            _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
        }
        if owes && heard.contains(PollFlags::OUT) {
            self.shared.out().flush().map_err(End::from)?;
        }
        if heard.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.listen()?;
        }
        Ok(())
    }

    /// Some messages: who sends many gets no more than its turn.
    fn listen(&mut self) -> Result<(), End> {
        for _ in 0..MESSAGES {
            match self.socket.receive().map_err(End::from)? {
                Received::Nothing => return Ok(()),
                Received::End => return Err(End::Closed),
                Received::Message(message) if message.header.flags.is_reply() => self.answered(message)?,
                Received::Message(message) => self.asked(&message.header, &message.body)?,
            }
        }
        Ok(())
    }

    fn answered(&self, message: Message<OwnedFd>) -> Result<(), End> {
        let Message { header, body, fds, lost_fds } = message;
        if lost_fds {
            // Without them the answer means something else.
            return Err(End::System(format!("{}, of an answer with descriptors", Errno::MFILE)));
        }
        let mut state = self.shared.state();
        let caller = state.calls.answered(&header).map_err(End::Malformed)?;
        let answer = if header.flags.is_error() { Err(errno(header.error)) } else { Ok((body, fds)) };
        let told = match caller {
            Caller::Nobody => None,
            Caller::Waits(number) => {
                state.answers.insert(number, answer);
                None
            }
            Caller::Fetches(ticket) => {
                state.late.push((ticket, answer));
                state.hooks.late.clone()
            }
        };
        drop(state);
        self.shared.news.notify_all();
        if let Some(told) = told {
            told();
        }
        Ok(())
    }

    /// The server asks something of this side: its memory, or what is not known here.
    fn asked(&self, header: &Header, body: &[u8]) -> Result<(), End> {
        let memory = self.shared.state().hooks.memory.clone();
        let bytes = match (DmaAsk::from_message(header, body, MOST_DATA), memory) {
            (Ok(Some(ask @ DmaAsk::Read { address, count })), Some(memory)) => {
                let mut data = vec![0; count as usize];
                memory.read(address, &mut data).then(|| ask.answer(header, &data))
            }
            (Ok(Some(ask @ DmaAsk::Write { address, data })), Some(memory)) => memory.write(address, data).then(|| ask.answer(header, &[])),
            (Ok(Some(_)), None) => None,
            (Ok(None), _) => Some(refusal(header, Errno::NOTSUP)),
            (Err(_), _) => Some(refusal(header, Errno::INVAL)),
        };
        let bytes = bytes.unwrap_or_else(|| refusal(header, Errno::FAULT));
        if header.flags.wants_reply() {
            self.shared.out().send(&bytes, &[]).map_err(End::from)?;
        }
        Ok(())
    }
}

fn refusal(header: &Header, errno: Errno) -> Vec<u8> {
    Header { flags: Flags::ERROR, error: errno.raw_os_error() as u32, ..*header }.with_body(&[])
}

/// An error number as a server says it: one that there is.
fn errno(said: u32) -> Errno {
    let said = i32::try_from(said).ok().filter(|said| (1..4096).contains(said));
    said.map_or(Errno::IO, Errno::from_raw_os_error)
}
