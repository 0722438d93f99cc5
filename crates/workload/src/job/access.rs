//! Where I/Os go: distributions of random offsets.

/// How random offsets are distributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Each block as likely as any other.
    #[default]
    Uniform,
    /// Zipf's law with this exponent; which blocks are the popular ones is itself scattered.
    Zipf {
        /// The exponent, above 0 and not 1.
        theta: f64,
    },
    /// A self-similar distribution: the share `h` of the blocks has the share `1 - h` of the I/Os, and so on within it. fio calls it
    /// pareto. Which blocks are the popular ones is scattered.
    Pareto {
        /// Above 0, below 1.
        h: f64,
    },
    /// A bell around the middle of the region.
    Normal {
        /// The deviation, in per cent of the region.
        percent: f64,
    },
}
