use ::sim::file::read_costs;

use super::*;

#[test]
fn medians_have_intervals() {
    let never = AtomicBool::new(false);
    let mut n = 0.0;
    let [a, b] = sampler(&never)
        .repeat(|| {
            n += 1.0;
            Some([7.0, n])
        })
        .unwrap();
    assert_eq!((a.value, a.interval), (7.0, Some([7.0, 7.0])));
    assert!(
        b.interval.is_some_and(|[low, high]| low < b.value && b.value < high)
            && (10.0..24.0).contains(&b.value),
        "{b:?}"
    );
}

#[test]
fn stop_or_failure_yields_nothing() {
    let (now, never) = (AtomicBool::new(true), AtomicBool::new(false));
    assert!(sampler(&now).repeat(|| Some([1.0])).is_none());
    assert!(sampler(&never).repeat(|| None::<[f64; 1]>).is_none());
}

fn sampler(stop: &AtomicBool) -> Sampler<'_> {
    Sampler { stop, rng: Xoshiro256PlusPlus::seed_from_u64(1), until: Instant::now() + ALL }
}

fn e(value: f64) -> Option<Estimate> {
    Some(Estimate { value, interval: Some([value * 0.9, value * 1.1]) })
}

fn pair(a: f64, b: f64) -> Option<[Estimate; 2]> {
    Some([e(a)?, e(b)?])
}

/// What is wrong with the list that is made of this.
fn wrong(found: &Measurements) -> Option<String> {
    free(&read_costs("here.toml", &toml(&prices(found).unwrap(), "")).unwrap())
}

fn found() -> Measurements {
    Measurements {
        syscall: e(150.0),
        signal: e(250.0),
        signal_and_return: e(600.0),
        switch: e(3_600.0),
        nap: pair(12_000.0, 30_000.0),
        sleep: [9_150.0, 20_000.0, 900.0].map(|ns| e(ns).unwrap()).into(),
        awake: e(1_000.0),
        library: [40.0, 20.0, 160.0, 10.0, 15.0, 5.0].map(|ns| e(ns).unwrap()).into(),
        line: e(120.0),
        wake_up: [e(7_000.0), e(8_000.0), None],
        ..Measurements::default()
    }
}

#[test]
fn price_list_round_trips() {
    let prices = prices(&found()).unwrap();
    let costs = read_costs("here.toml", &toml(&prices, "a machine")).unwrap();
    assert_eq!((costs.thread.syscall, costs.thread.signal), (Nanos(150), Nanos(250)));
    // 600 less the signal and the system call.
    assert_eq!(costs.thread.block, Nanos(200));
    // From thread to thread, less signal, wake, system call and block; and what is left of the
    // sleep.
    let switch = Nanos(3_600 - 250 - 150 - 200) - Costs::VIRTUAL.thread.wake;
    assert_eq!((costs.thread.switch, costs.thread.from_idle), (switch, Nanos(8_800) - switch));
    assert_eq!((costs.memory.line_node, costs.memory.device_line), (Nanos(120), Nanos(120)));
    assert_eq!(costs.thread.timer, Nanos(12_000 - 9_150));
    assert_eq!(
        [costs.wake_up.eventfd, costs.wake_up.io_uring, costs.wake_up.timer].map(|ns| ns.0),
        [7_000, 8_000, Costs::VIRTUAL.wake_up.timer.0]
    );
    // What was not measured is what ships.
    assert_eq!((costs.interrupt, costs.block), (Costs::VIRTUAL.interrupt, Costs::VIRTUAL.block));
}

/// The sums are what was measured, however they are divided.
#[test]
fn prices_sum_to_measurements() {
    let costs = read_costs("here.toml", &toml(&prices(&found()).unwrap(), "")).unwrap();
    let thread = &costs.thread;
    let back = thread.switch + thread.from_idle;
    assert_eq!(thread.syscall + thread.block + back, Nanos(9_150));
    assert_eq!(
        thread.signal + thread.wake + thread.syscall + thread.block + thread.switch,
        Nanos(3_600)
    );
    // The signal takes effect when it is over, lines included.
    let effect = thread.signal + costs.memory.line_node + costs.memory.line_node;
    assert_eq!(effect + thread.idle_exit + back, Nanos(20_000));
    assert_eq!(thread.rouse, Nanos(900));
    // A timer brings no signal, and half of its jitter's distribution is below ln 2 of the mean.
    let timer =
        costs.interrupt.entry + costs.interrupt.timer + costs.interrupt.end + costs.interrupt.exit;
    let jitter = Nanos((thread.timer_jitter.0 as f64 * std::f64::consts::LN_2).round() as u64);
    let late = timer + jitter + thread.timer_exit + thread.timer_slack + thread.wake + back;
    assert!(late.0.abs_diff(30_000) <= 1, "{late}");
    assert!(thread.timer_exit <= thread.idle_exit);
    // From the call on, of which system call and block are a part.
    assert_eq!(thread.idle_after, Nanos(1_000 - 350));
}

#[test]
fn unmeasured_prices_are_shipped_ones() {
    let prices = prices(&Measurements::default()).unwrap();
    assert_eq!(
        read_costs("here.toml", &toml(&prices, "two\nlines"[..3].into())).unwrap(),
        Costs::VIRTUAL
    );
    assert!(prices.iter().all(|price| price.how.is_none()));
    assert!(table(&prices, "machine", 120).contains("Not measured here"));
}

#[test]
fn the_tables_fit_their_line() {
    let prices = prices(&found()).unwrap();
    for width in [60, 80, 120] {
        let text =
            table(&prices, "a machine whose name is of some length, with CPUs and a kernel", width);
        assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{width}: {text}");
        assert!(
            text.contains("thread.from_idle")
                && text.contains("idle_exit")
                && text.matches('─').count() <= 2 * 120,
            "{text}"
        );
    }
}

/// A nap costs more than a sleep, and every wake-up takes something from other work.
#[test]
fn zero_prices_are_refused() {
    let good = found();
    assert_eq!(wrong(&good), None);
    let busy = Measurements { nap: pair(9_000.0, 30_000.0), ..good.clone() };
    assert!(wrong(&busy).unwrap().starts_with("thread.timer came out as 0"));
    let short = good.sleep.map(|[cpu, _, signal]| [cpu, e(9_000.0).unwrap(), signal]);
    assert_eq!(wrong(&Measurements { sleep: short, ..good.clone() }), None);
    let rings = [e(9.0), e(0.0), e(9.0)];
    assert!(
        wrong(&Measurements { wake_up: rings, ..busy })
            .unwrap()
            .starts_with("thread.timer and wake_up.io_uring came out as 0")
    );
    let wake_up = [e(0.0), e(9.0), e(9.0)];
    assert!(
        wrong(&Measurements { wake_up, ..good })
            .unwrap()
            .starts_with("wake_up.eventfd came out as 0")
    );
    assert!([Costs::VIRTUAL, Costs::BARE_METAL].iter().all(|shipped| free(shipped).is_none()));
}
