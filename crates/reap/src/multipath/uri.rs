//! `multipath:?path=URI&path=URI…&policy=…`: several controllers of one subsystem as one device.

use std::fmt;
use std::str::FromStr;

use driver::multipath::FailoverConfig;
use driver::paths::{PathSet, Policy};
use emu::Script;
use nvme::AnaState;
use units::Nanos;

use crate::transport::tcp::TcpUri;
use crate::transport::vfio_user::VfioUserUri;
use crate::transport::{TCP, VFIO_USER};
use crate::uri::values::{decode, encode, no_parameter};
use crate::uri::{DeviceUri, MULTIPATH as SCHEME, UriError};

/// A parsed multipath URI.
///
/// Each `path=` is a device URI: embedded controllers (`mem:`, `file:`) for all paths, or
/// `vfio-user:` servers for all. An `&` inside it is written `%26`; any other character may be
/// percent-encoded too. A path may also have `delay=` (added to every command's time), `ana=` (its
/// ANA state at power-on: `optimized`, `non-optimized`, `inaccessible`, `persistent-loss`,
/// `change`), `cntlid=` (its controller identifier, where several servers serve one subsystem) and
/// `node=` (the memory node of its controller). Paths with the same medium are controllers of one
/// subsystem and share its namespaces.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MultipathUri {
    /// `path=`, in order.
    pub paths: Vec<PathUri>,
    /// `policy=`: how a path is chosen; `latency` by default.
    pub policy: Policy,
    /// `nsid=`: the namespace; the first by default.
    pub nsid: Option<u32>,
    /// `no_path_timeout=`, `no_path_limit=`, `held_timeout=`, `unsafe_fast_failover=`.
    pub failover: FailoverConfig,
    /// `keep_alive=`: the controllers' Keep Alive Timeout. Twice this, plus their quiesce time,
    /// after its path was lost a controller has stopped, and writes that it had may be sent
    /// elsewhere.
    pub keep_alive: Nanos,
    /// `script=`: changes to the controllers over time, beginning at open; for tests.
    pub(crate) script: Script,
    /// The given parameters that concern the host only; `reap serve` refuses them.
    pub(crate) of_the_host: Vec<&'static str>,
}

/// One path.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathUri {
    /// Its text, percent-decoded.
    pub(crate) text: String,
    /// The controller.
    pub device: PathDevice,
    /// `delay=`: time added to every command.
    pub delay: Nanos,
    /// `ana=`: the state of its ANA group at power-on.
    pub ana: AnaState,
    /// `cntlid=`: its controller identifier; `None`: the next free one.
    pub controller: Option<u16>,
    /// `node=`: the memory node that its controller is on, for `numa`.
    pub node: Option<u16>,
}

/// The controller at the end of a path.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PathDevice {
    /// `mem:`, `file:`: an embedded controller. Paths with the same medium are controllers of one
    /// subsystem.
    Embedded(DeviceUri),
    /// `vfio-user:`: a controller that another process serves.
    Served(VfioUserUri),
    /// `tcp:`: a controller over NVMe/TCP.
    Tcp(TcpUri),
}

impl PathUri {
    /// A path to this controller, with the default for every other field.
    pub fn new(device: PathDevice) -> PathUri {
        let text = match &device {
            PathDevice::Embedded(uri) => uri.to_string(),
            PathDevice::Served(uri) => uri.to_string(),
            PathDevice::Tcp(uri) => uri.to_string(),
        };
        PathUri {
            text,
            device,
            delay: Nanos::ZERO,
            ana: AnaState::OPTIMIZED,
            controller: None,
            node: None,
        }
    }

    fn check(&self) -> Result<(), String> {
        // Base §2.1, CNTLID: FFF0h and above are reserved.
        let fits = |id: u16| (1..0xfff0).contains(&id);
        if let Some(id) = self.controller.filter(|&id| !fits(id)) {
            return Err(format!(
                "`{}`: `cntlid`: `{id}` is no controller identifier: 1 to 65519",
                self.text
            ));
        }
        match &self.device {
            PathDevice::Embedded(uri) => uri.check(),
            // These describe embedded controllers; a served one has them from its server.
            PathDevice::Served(_) | PathDevice::Tcp(_)
                if self.delay > Nanos::ZERO || self.ana != AnaState::OPTIMIZED || self.controller.is_some() =>
            {
                Err("`delay`, `ana` and `cntlid` are what `reap serve` takes; a client cannot change a controller of another process".into())
            }
            PathDevice::Served(uri) => uri.check(),
            PathDevice::Tcp(uri) => uri.check(),
        }
        .map_err(|what| format!("`{}`: {what}", self.text))
    }

    /// The value of its `path=` parameter.
    fn to_parameter(&self) -> String {
        let time = |time: Nanos| format!("delay={}ns", time.0);
        let own = [
            (self.delay > Nanos::ZERO).then(|| time(self.delay)),
            self.ana
                .name()
                .filter(|_| self.ana != AnaState::OPTIMIZED)
                .map(|name| format!("ana={name}")),
            self.controller.map(|id| format!("cntlid={id}")),
            self.node.map(|node| format!("node={node}")),
        ];
        let device = PathUri::new(self.device.clone()).text;
        own.into_iter().flatten().fold(device, |text, own| {
            format!("{text}{}{own}", if text.contains('?') { '&' } else { '?' })
        })
    }
}

impl From<TcpUri> for MultipathUri {
    /// The device of one path: nvme-cli's time-outs say how long requests wait for it.
    fn from(uri: TcpUri) -> MultipathUri {
        let waits = uri.fast_io_fail_tmo.unwrap_or(uri.ctrl_loss_tmo);
        let failover = FailoverConfig { no_path_timeout: waits, ..FailoverConfig::default() };
        let keep_alive = uri.keep_alive_tmo;
        MultipathUri {
            failover,
            keep_alive,
            ..MultipathUri::new(vec![PathUri::new(PathDevice::Tcp(uri))])
        }
    }
}

impl fmt::Display for MultipathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = FailoverConfig::default();
        let span =
            |key: &str, of: Nanos, usual: Nanos| (of != usual).then(|| format!("{key}={}ns", of.0));
        let said = [
            (self.policy != Policy::Latency).then(|| format!("policy={}", self.policy)),
            self.nsid.map(|nsid| format!("nsid={nsid}")),
            span("no_path_timeout", self.failover.no_path_timeout, usual.no_path_timeout),
            (self.failover.no_path_limit != usual.no_path_limit)
                .then(|| format!("no_path_limit={}", self.failover.no_path_limit)),
            span("held_timeout", self.failover.held_timeout, usual.held_timeout),
            self.failover.unsafe_fast_failover.then(|| "unsafe_fast_failover=yes".to_owned()),
            span("keep_alive", self.keep_alive, MultipathUri::new(Vec::new()).keep_alive),
            (!self.script.steps.is_empty())
                .then(|| format!("script={}", encode(&self.script.to_string()))),
        ];
        let paths = self.paths.iter().map(|path| format!("path={}", encode(&path.to_parameter())));
        write!(
            f,
            "{SCHEME}?{}",
            paths.chain(said.into_iter().flatten()).collect::<Vec<_>>().join("&")
        )
    }
}

/// Parameters that concern the host only.
const HOST_KEYS: [&str; 7] = [
    "policy",
    "nsid",
    "no_path_limit",
    "no_path_timeout",
    "held_timeout",
    "keep_alive",
    "unsafe_fast_failover",
];

const KEYS: &str = "path, policy, nsid, no_path_limit, no_path_timeout, held_timeout, keep_alive, unsafe_fast_failover, script";

impl DeviceUri {
    /// The device of `uri`; of a multipath URI, the controller of its first path.
    ///
    /// # Errors
    /// It does not parse, or its paths lead to other processes.
    pub fn behind(uri: &str) -> Result<DeviceUri, UriError> {
        if !uri.starts_with(SCHEME) {
            return uri.parse();
        }
        let paths = uri.parse::<MultipathUri>()?.paths;
        match paths.into_iter().next().map(|path| path.device) {
            Some(PathDevice::Embedded(device)) => Ok(device),
            _ => Err(UriError {
                uri: uri.to_owned(),
                column: 1,
                what: "its paths lead to controllers of other processes".into(),
            }),
        }
    }
}

impl FromStr for MultipathUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<MultipathUri, UriError> {
        let fail = |at: usize, what: String| UriError { uri: uri.to_owned(), column: at + 1, what };
        let example = "write it as `multipath:?path=mem:1G?profile=tlc&path=mem:1G?profile=tlc&policy=latency`";
        let rest = uri
            .strip_prefix(SCHEME)
            .ok_or_else(|| fail(0, format!("expected `{SCHEME}`; {example}")))?;
        let query = rest
            .strip_prefix('?')
            .ok_or_else(|| fail(SCHEME.len(), format!("a `?` and paths must follow; {example}")))?;
        let mut parsed = MultipathUri::new(Vec::new());
        let mut at = SCHEME.len() + 1;
        for pair in query.split('&') {
            // A switch such as `unsafe_fast_failover` needs no value.
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value_at = at + key.len() + 1;
            parsed.set(key, value).map_err(|wrong| match wrong {
                ParameterError::Key(what) => fail(at, what),
                ParameterError::Value(what) => fail(value_at, what),
            })?;
            at += pair.len() + 1;
        }
        if parsed.paths.is_empty() {
            return Err(fail(SCHEME.len(), format!("no `path=` is given; {example}")));
        }
        // Checks that concern several parameters have no column of their own.
        parsed.check().map_err(|what| fail(0, what))?;
        Ok(parsed)
    }
}

/// What is wrong with a parameter: its key, or its value. They begin at different columns.
enum ParameterError {
    Key(String),
    Value(String),
}

impl MultipathUri {
    /// `paths` controllers of one device, `mem:SIZE` or `file:PATH` with parameters, a path's own
    /// included.
    ///
    /// # Errors
    /// The device's URI does not parse.
    pub fn repeated(device: &str, paths: usize) -> Result<MultipathUri, UriError> {
        let path = parse_path(device).map_err(|what| UriError {
            uri: device.to_owned(),
            column: 1,
            what,
        })?;
        Ok(MultipathUri::new(vec![path; paths.min(PathSet::MAX)]))
    }

    /// A device with these paths, and the default for every other field.
    pub fn new(paths: Vec<PathUri>) -> MultipathUri {
        MultipathUri {
            paths,
            policy: Policy::Latency,
            nsid: None,
            failover: FailoverConfig::default(),
            keep_alive: Nanos::from_secs(1),
            script: Script::default(),
            of_the_host: Vec::new(),
        }
    }

    /// Whether its controllers are in other processes.
    pub fn is_served(&self) -> bool {
        self.paths.iter().any(|path| !matches!(path.device, PathDevice::Embedded(_)))
    }

    /// Checks the fields, which a caller may have set without parsing a URI. The controllers of a
    /// subsystem are all embedded, or none is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let paths = self.paths.len();
        // `PathSet` is a bitmap of 64 paths.
        if paths == 0 || paths > PathSet::MAX {
            return Err(format!("there are {paths} paths, and there can be 1 to {}", PathSet::MAX));
        }
        if let Some(step) = self.script.steps.iter().find(|step| step.path >= paths) {
            return Err(format!(
                "the script names path {}, and there are {paths}, counted from 0",
                step.path
            ));
        }
        self.paths.iter().try_for_each(PathUri::check)?;
        if !self.is_served() {
            return Ok(());
        }
        if let Some(path) =
            self.paths.iter().find(|path| matches!(path.device, PathDevice::Embedded(_)))
        {
            let served = "and others lead to controllers of other processes (`vfio-user:`, `tcp:`); they cannot be of one subsystem";
            return Err(format!("path `{}` is a controller of this process, {served}", path.text));
        }
        if self.paths.iter().any(|path| {
            std::mem::discriminant(&path.device) != std::mem::discriminant(&self.paths[0].device)
        }) {
            return Err("the paths are of `tcp:` or of `vfio-user:`: those of one device have one kind of transport".into());
        }
        if self.keep_alive == Nanos::ZERO
            && self.paths.iter().any(|path| matches!(path.device, PathDevice::Tcp(_)))
        {
            return Err("`keep_alive` cannot be 0 with `tcp:`: after a loss nothing would say when the controller has stopped".into());
        }
        if !self.script.steps.is_empty() {
            return Err("`script=` happens to controllers of this process; `reap serve --script` and `reap ctl` take it for others".into());
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ParameterError> {
        // Decoded once here; a path's own parameters are inside and may be encoded again.
        let value = &decode(value).map_err(ParameterError::Value)?;
        let set = match key {
            // Refused here too, so that the error points to the path that is one too many.
            "path" if self.paths.len() >= PathSet::MAX => {
                Err(format!("there are {} paths already, the maximum", PathSet::MAX))
            }
            "path" => parse_path(value).map(|path| self.paths.push(path)),
            "policy" => value
                .parse()
                .map(|policy| self.policy = policy)
                .map_err(|e: driver::paths::PolicyError| e.to_string()),
            "nsid" => parse_number(value).map(|n| self.nsid = Some(n)),
            "no_path_limit" => parse_number(value).map(|n| self.failover.no_path_limit = n),
            "no_path_timeout" => value.parse().map(|span| self.failover.no_path_timeout = span),
            "held_timeout" => value.parse().map(|span| self.failover.held_timeout = span),
            "keep_alive" => value.parse().map(|span| self.keep_alive = span),
            "unsafe_fast_failover" => {
                parse_switch(value).map(|on| self.failover.unsafe_fast_failover = on)
            }
            "script" => value
                .parse()
                .map(|script| self.script = script)
                .map_err(|e: emu::ScriptError| e.to_string()),
            _ => return Err(ParameterError::Key(no_parameter(key, KEYS))),
        };
        self.of_the_host.extend(HOST_KEYS.into_iter().find(|of_the_host| *of_the_host == key));
        set.map_err(|what| ParameterError::Value(format!("`{key}`: {what}")))
    }
}

/// Parses a path: `delay`, `ana`, `cntlid` and `node` are its own, the rest is its device's.
fn parse_path(text: &str) -> Result<PathUri, String> {
    // Would recurse.
    if text.starts_with(SCHEME) {
        return Err("a path leads to one controller, and cannot be `multipath:` itself".into());
    }
    let (body, query) = text.split_once('?').map_or((text, ""), |(body, query)| (body, query));
    let (mut delay, mut ana, mut controller, mut node) =
        (Nanos::ZERO, AnaState::OPTIMIZED, None, None);
    let mut own = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("delay", value)) => {
                delay =
                    value.parse().map_err(|what: String| format!("`{text}`: `delay`: {what}"))?
            }
            Some(("ana", value)) => {
                ana = parse_ana_state(value).map_err(|what| format!("`{text}`: `ana`: {what}"))?
            }
            Some(("cntlid", value)) => {
                let parsed = value.parse().ok().filter(|id| (1..0xfff0).contains(id));
                controller = Some(parsed.ok_or_else(|| {
                    format!("`{text}`: `cntlid`: `{value}` is no controller identifier: 1 to 65519")
                })?);
            }
            Some(("node", value)) => {
                let parsed = value.parse().map_err(|_| {
                    format!("`{text}`: `node`: `{value}` is no memory node's number")
                })?;
                node = Some(parsed);
            }
            _ => own.push(pair),
        }
    }
    // The device's URI is put together again without the path's own parameters.
    let device = if own.is_empty() { body.to_owned() } else { format!("{body}?{}", own.join("&")) };
    let wrong = |e: UriError| format!("`{text}`: {}", e.what);
    let device = if !device.starts_with(VFIO_USER) && !device.starts_with(TCP) {
        PathDevice::Embedded(device.parse().map_err(wrong)?)
    } else if let Some(key) = ["delay", "ana", "cntlid"]
        .into_iter()
        .find(|key| query.split('&').any(|pair| pair.split('=').next() == Some(key)))
    {
        return Err(format!(
            "`{text}`: `{key}` is what `reap serve` takes; a client cannot change a controller of another process"
        ));
    } else if device.starts_with(TCP) {
        PathDevice::Tcp(device.parse().map_err(wrong)?)
    } else {
        PathDevice::Served(device.parse().map_err(wrong)?)
    };
    Ok(PathUri { text: text.to_owned(), device, delay, ana, controller, node })
}

fn parse_ana_state(name: &str) -> Result<AnaState, String> {
    let names = || AnaState::ALL.iter().filter_map(|state| state.name());
    let known = AnaState::ALL.into_iter().find(|state| state.name() == Some(name));
    known.ok_or_else(|| {
        format!(
            "there is no ANA state `{name}`; known are {}",
            names().collect::<Vec<_>>().join(", ")
        )
    })
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no whole number, or too large"))
}

/// A switch without a value is on.
fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "" | "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        other => Err(format!("`{other}` is neither `true` nor `false`")),
    }
}

#[cfg(test)]
mod tests;
