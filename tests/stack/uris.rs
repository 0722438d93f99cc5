//! Devices by the fields of their URIs, and what is wrong with options.

use nvme::AnaState;
use reap::paths::Policy;
use reap::{
    Backing, Buffered, Device, DeviceUri, KernelUri, MapError, Mode, MultipathUri, Nanos,
    OpenError, OpenOptions, OptionsError, PathDevice, PathUri, PcieUri, QueueError,
    UnsupportedMode, Uri, VfioUserUri,
};

use crate::common::wait_until;

fn small() -> DeviceUri {
    let mut uri = DeviceUri::memory(1 << 20);
    uri.profile = "null".into();
    uri
}

fn two_paths() -> MultipathUri {
    let paths = [Nanos::ZERO, Nanos::from_millis(30)].map(|delay| {
        let mut path = PathUri::new(PathDevice::Embedded(small()));
        (path.delay, path.ana) = (
            delay,
            if delay > Nanos::ZERO { AnaState::NON_OPTIMIZED } else { AnaState::OPTIMIZED },
        );
        path
    });
    MultipathUri::new(paths.into())
}

/// What is set in code can be written as text, and means the same.
#[test]
fn uris_are_written_as_they_are_read() {
    let strange = "vectors=2&masks=no&fetch=mixed&aborts=never&doorbells=late&shadow=no&sgl=yes&trust=yes&share=yes&thread=own&entries=64\
        &alloc=1M&properties=late&seed=7";
    let mut file: DeviceUri = format!("file:/tmp/medium?{strange}").parse().unwrap();
    file.backing = Backing::File { path: "/tmp/a?b %c".into(), bytes: Some(1 << 30) };
    (file.profile, file.lba_bytes, file.namespaces, file.queues) =
        ("my & own.toml".into(), 4096, 3, 5);
    for parameter in strange.split('&') {
        assert!(file.to_string().contains(parameter), "{parameter} of {file}");
    }
    let mut kernel = KernelUri::new("/dev/nvme0n1");
    (kernel.read_only, kernel.buffered, kernel.lba_bytes) = (true, Buffered::No, Some(4096));
    let drive = PcieUri::new("0000:01:00.0".parse().unwrap());
    let mut served = VfioUserUri::new("/run/nvme.sock");
    (served.trust, served.huge_pages) = (true, true);
    let [odd_drive, odd_server] =
        ["pcie:0000:01:00.0?vectors=3&shadow=no", "vfio-user:/run/nvme.sock?sgl=no"]
            .map(|uri| uri.parse().unwrap());
    for uri in [
        Uri::from(file),
        small().into(),
        kernel.into(),
        drive.into(),
        served.into(),
        odd_drive,
        odd_server,
    ] {
        assert_eq!(uri.to_string().parse(), Ok(uri.clone()), "{uri}");
    }
    let mut paths = two_paths();
    paths.policy = Policy::RoundRobin;
    paths.failover.no_path_timeout = Nanos::from_millis(1_500);
    let read: MultipathUri = paths.to_string().parse().unwrap();
    assert_eq!((read.policy, read.failover), (paths.policy, paths.failover));
    for (read, path) in read.paths.iter().zip(&paths.paths) {
        assert_eq!(
            (&read.device, read.delay, read.ana),
            (&path.device, path.delay, path.ana),
            "{paths}"
        );
    }
}

#[test]
fn devices_open_by_their_fields() {
    let device = Device::open(small()).unwrap();
    assert_eq!(
        (device.description().uri.as_str(), device.namespaces()[0].bytes()),
        ("mem:1M?profile=null", 1 << 20)
    );
    let device = Device::open_with(two_paths(), &OpenOptions::new().software_queues(1)).unwrap();
    wait_until("its ANA log page is read", || {
        device.paths()[1].status.ana == AnaState::NON_OPTIMIZED
    });
}

/// No text is parsed on that way: what parsing refuses is refused all the same.
#[test]
fn fields_are_checked() {
    let refused = |uri: Uri, words: &str| match Device::open(uri) {
        Err(OpenError::Uri(why)) => assert!(why.what.contains(words), "{why}"),
        other => panic!("{words}: {other:?}"),
    };
    let with = |set: fn(&mut DeviceUri)| {
        let mut uri = small();
        set(&mut uri);
        Uri::from(uri)
    };
    refused(with(|uri| uri.queues = 65), "from 1 to 64");
    refused(with(|uri| uri.namespaces = 0), "from 1 to 16");
    refused(with(|uri| uri.lba_bytes = 520), "`512` or `4096`");
    refused(with(|uri| uri.backing = Backing::Mem { bytes: 1000 }), "not whole blocks");
    let mut served = VfioUserUri::new("/run/nvme.sock");
    served.huge_pages = true;
    refused(served.clone().into(), "add `trust=yes`");
    refused(MultipathUri::new(Vec::new()).into(), "there can be 1 to");
    let mut path = PathUri::new(PathDevice::Served(VfioUserUri::new("/run/nvme.sock")));
    path.delay = Nanos::from_millis(1);
    refused(MultipathUri::new(vec![path]).into(), "cannot change a controller");
    let mut paths = two_paths();
    paths.paths[1].controller = Some(0);
    refused(paths.into(), "no controller identifier");
}

/// A program can tell what to do otherwise without reading words.
#[test]
fn refused_options_are_typed() {
    let refused = |uri: &str, options: OpenOptions| match Device::open_with(uri, &options) {
        Err(OpenError::Options(why)) => why,
        other => panic!("{uri}: {other:?}"),
    };
    let (mem, kernels) = ("mem:1M?profile=null", Mode::KERNELS[0]);
    assert!(matches!(
        refused(mem, OpenOptions::new().timeout(std::time::Duration::ZERO)),
        OptionsError::NoTimeout
    ));
    assert!(matches!(
        refused(mem, OpenOptions::new().software_queues(0)),
        OptionsError::Queues(MapError::Software(0))
    ));
    let shared = refused(mem, OpenOptions::new().software_queues(300).hardware_queues(1));
    assert!(matches!(shared, OptionsError::Shared { queues: 300, most: 256 }), "{shared:?}");
    let mode = refused(mem, OpenOptions::new().mode(kernels));
    assert!(
        matches!(mode, OptionsError::Mode(UnsupportedMode::NotTheKernels(mode)) if mode == kernels),
        "{mode:?}"
    );
    assert!(matches!(
        refused("mem:1M?shadow=no", OpenOptions::new()),
        OptionsError::ServerOnly("shadow=")
    ));
    assert!(matches!(
        refused("multipath:?path=mem:1M&path=mem:2M", OpenOptions::new()),
        OptionsError::Paths(_)
    ));
    let device = Device::open(mem).unwrap();
    assert_eq!(
        (device.unsupported_reason(kernels), device.mode_note(Mode::POSTED)),
        (Some(UnsupportedMode::NotTheKernels(kernels)), None)
    );
    assert!(matches!(
        device.local_queue_in(kernels),
        Err(QueueError::Mode(UnsupportedMode::NotTheKernels(_)))
    ));
}
