//! `tcp://HOST[:PORT]/NQN[?…]`. The parameters have nvme-cli's names.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use units::Nanos;

use crate::uri::UriError;
use crate::uri::values::{decode, each_parameter, encode, no_parameter, one_of, within};

/// The scheme, with its slashes.
pub(crate) const SCHEME: &str = "tcp://";

const KEYS: &str = "discover, queues, hdr_digest, data_digest, keep_alive_tmo, reconnect_delay, ctrl_loss_tmo, fast_io_fail_tmo, cqt, host_nqn, host_id, host_traddr";

/// A parsed URI of a controller over NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpUri {
    /// Name or address of the target; of IPv6 without brackets.
    pub host: String,
    /// TCP port: 4420 by default, 8009 with `discover`.
    pub port: u16,
    /// NQN of the subsystem.
    pub nqn: String,
    /// `discover=yes|no`: at `host` is a discovery controller. The device has a path for each of
    /// the subsystem's addresses in its log.
    pub discover: bool,
    /// `queues=`: most I/O queues. `None`: one for each CPU.
    pub queues: Option<u16>,
    /// `hdr_digest=yes|no`: digests of headers.
    pub hdr_digest: bool,
    /// `data_digest=yes|no`: digests of data.
    pub data_digest: bool,
    /// `keep_alive_tmo=SECONDS`: KATO, 5 s by default.
    pub keep_alive_tmo: Nanos,
    /// `reconnect_delay=SECONDS`: the longest pause between attempts to connect again, 10 s by
    /// default.
    pub reconnect_delay: Nanos,
    /// `ctrl_loss_tmo=SECONDS`: how long a lost controller is waited for, 600 s by default; -1
    /// ([`Nanos::MAX`]): for ever.
    pub ctrl_loss_tmo: Nanos,
    /// `fast_io_fail_tmo=SECONDS`: how long I/O waits for a lost controller. `None`: as long as the
    /// controller is waited for.
    pub fast_io_fail_tmo: Option<Nanos>,
    /// `cqt=MILLISECONDS`: the Command Quiesce Time where the controller reports none, 2 s by
    /// default.
    pub cqt: Nanos,
    /// `host_nqn=`: the host's NQN. `None`: that of `/etc/nvme/hostnqn`, else one for this process.
    pub host_nqn: Option<String>,
    /// `host_id=`: the host identifier, a UUID. `None`: that of `/etc/nvme/hostid`, else one for
    /// this process.
    pub host_id: Option<String>,
    /// `host_traddr=`: the local address.
    pub host_traddr: Option<IpAddr>,
}

impl TcpUri {
    /// The subsystem `nqn` at a target, with the default for every other field.
    pub fn new(host: impl Into<String>, port: u16, nqn: impl Into<String>) -> TcpUri {
        TcpUri {
            host: host.into(),
            port,
            nqn: nqn.into(),
            discover: false,
            queues: None,
            hdr_digest: false,
            data_digest: false,
            keep_alive_tmo: Nanos::from_secs(5),
            reconnect_delay: Nanos::from_secs(10),
            ctrl_loss_tmo: Nanos::from_secs(600),
            fast_io_fail_tmo: None,
            cqt: Nanos::from_secs(2),
            host_nqn: None,
            host_id: None,
            host_traddr: None,
        }
    }

    /// The same with another keep-alive time-out.
    pub(crate) fn with_keep_alive(&self, keep_alive_tmo: Nanos) -> TcpUri {
        TcpUri { keep_alive_tmo, ..self.clone() }
    }

    /// Checks the fields, which a caller may have set without parsing a URI.
    pub(crate) fn check(&self) -> Result<(), String> {
        for nqn in [Some(&self.nqn), self.host_nqn.as_ref()].into_iter().flatten() {
            if !nqn.starts_with("nqn.") || nqn.len() > 223 || nqn.chars().any(char::is_control) {
                return Err(format!(
                    "`{nqn}` is no NQN: it begins with `nqn.`, and has 223 bytes at most"
                ));
            }
        }
        if let Some(id) = self.host_id.as_ref().filter(|id| super::connect::uuid(id).is_none()) {
            return Err(format!("`host_id={id}`: expected a UUID"));
        }
        // The fence after a loss is computed from both.
        if self.keep_alive_tmo == Nanos::ZERO || self.cqt == Nanos::ZERO {
            return Err("`keep_alive_tmo` and `cqt` cannot be 0: after a loss nothing would say when the controller has stopped".into());
        }
        if self.host.is_empty() || self.queues == Some(0) {
            return Err("a host must be named, and there must be an I/O queue".into());
        }
        Ok(())
    }

    /// Sets one parameter of the query.
    ///
    /// # Errors
    /// The parameter is unknown, or its value is invalid.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let seconds = |low| within(key, value, low, 86_400 * 365).map(Nanos::from_secs);
        match key {
            "discover" => self.discover = one_of(key, value, &["yes", "no"])? == "yes",
            "queues" => self.queues = Some(within(key, value, 1, 65_535)? as u16),
            "hdr_digest" => self.hdr_digest = one_of(key, value, &["yes", "no"])? == "yes",
            "data_digest" => self.data_digest = one_of(key, value, &["yes", "no"])? == "yes",
            "keep_alive_tmo" => {
                self.keep_alive_tmo = within(key, value, 1, 4_000_000).map(Nanos::from_secs)?
            }
            "reconnect_delay" => self.reconnect_delay = seconds(1)?,
            "ctrl_loss_tmo" => {
                // As in nvme-cli, -1 reconnects without a limit.
                self.ctrl_loss_tmo = if value == "-1" { Nanos::MAX } else { seconds(0)? }
            }
            "fast_io_fail_tmo" => self.fast_io_fail_tmo = Some(seconds(0)?),
            "cqt" => self.cqt = Nanos::from_millis(within(key, value, 1, 86_400_000)?),
            "host_nqn" => self.host_nqn = Some(decode(value)?),
            "host_id" => self.host_id = Some(value.to_owned()),
            "host_traddr" => {
                self.host_traddr = Some(
                    value
                        .parse()
                        .map_err(|_| format!("`{key}={value}`: expected an IP address"))?,
                )
            }
            _ => return Err(no_parameter(key, KEYS)),
        }
        Ok(())
    }

    /// Host and port, as they are written in a URI.
    pub(crate) fn address(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

impl FromStr for TcpUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<TcpUri, UriError> {
        let fail = |at: usize, what: String| UriError { uri: uri.to_owned(), column: at + 1, what };
        let expected = "expected `tcp://HOST[:PORT]/NQN`, such as `tcp://192.0.2.1/nqn.2014-08.org.nvmexpress:uuid:…`";
        let rest = uri.strip_prefix(SCHEME).ok_or_else(|| fail(0, expected.into()))?;
        let (body, query) =
            rest.split_once('?').map_or((rest, None), |(body, query)| (body, Some(query)));
        let (address, nqn) =
            body.split_once('/').ok_or_else(|| fail(SCHEME.len(), expected.into()))?;
        // An IPv6 address is in brackets, since it has colons itself.
        let (host, named) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
            None => address
                .rsplit_once(':')
                .map_or((address, Some("")), |(host, port)| (host, Some(port))),
        };
        let is_named = named != Some("") || address.ends_with(':');
        let port = named.map(|port| if is_named { port } else { "4420" });
        let port = port.and_then(|port| port.parse().ok()).filter(|port| *port > 0);
        // More than one colon without brackets is an IPv6 address, whose last group is not a port.
        let port = port.filter(|_| !host.contains(':') || address.starts_with('['));
        let port = port
            .ok_or_else(|| fail(SCHEME.len(), format!("`{address}` is no address; {expected}")))?;
        let nqn_at = SCHEME.len() + address.len() + 1;
        let mut parsed = TcpUri::new(host, port, decode(nqn).map_err(|what| fail(nqn_at, what))?);
        let query_at = SCHEME.len() + body.len() + 1;
        each_parameter(query, query_at, "queues=2", |key, value| parsed.set(key, value))
            .map_err(|(at, what)| fail(at, what))?;
        if parsed.discover && !is_named {
            parsed.port = 8009;
        }
        parsed.check().map_err(|what| fail(nqn_at, what))?;
        Ok(parsed)
    }
}

impl fmt::Display for TcpUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameters with default values are left out, so that equal URIs have equal text.
        let usual = TcpUri::new("", 0, "");
        let seconds = |key: &str, is: Nanos, usual: Nanos| {
            (is != usual).then(|| format!("{key}={}", is.0 / 1_000_000_000))
        };
        let loss = if self.ctrl_loss_tmo == Nanos::MAX {
            Some("ctrl_loss_tmo=-1".to_owned())
        } else {
            None
        };
        let said = [
            self.discover.then(|| "discover=yes".to_owned()),
            self.queues.map(|queues| format!("queues={queues}")),
            self.hdr_digest.then(|| "hdr_digest=yes".to_owned()),
            self.data_digest.then(|| "data_digest=yes".to_owned()),
            seconds("keep_alive_tmo", self.keep_alive_tmo, usual.keep_alive_tmo),
            seconds("reconnect_delay", self.reconnect_delay, usual.reconnect_delay),
            loss.or_else(|| seconds("ctrl_loss_tmo", self.ctrl_loss_tmo, usual.ctrl_loss_tmo)),
            self.fast_io_fail_tmo
                .map(|span| format!("fast_io_fail_tmo={}", span.0 / 1_000_000_000)),
            (self.cqt != usual.cqt).then(|| format!("cqt={}", self.cqt.0 / 1_000_000)),
            self.host_nqn.as_ref().map(|nqn| format!("host_nqn={}", encode(nqn))),
            self.host_id.as_ref().map(|id| format!("host_id={id}")),
            self.host_traddr.map(|address| format!("host_traddr={address}")),
        ];
        let said: Vec<_> = said.into_iter().flatten().collect();
        write!(f, "{SCHEME}{}/{}", self.address(), encode(&self.nqn).replace('?', "%3F"))?;
        if said.is_empty() { Ok(()) } else { write!(f, "?{}", said.join("&")) }
    }
}

#[cfg(test)]
mod tests;
