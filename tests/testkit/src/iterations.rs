//! The CPU time of each iteration of a server's event loop: a preloaded library counts it for the main thread, from the
//! return of one `epoll_wait` to the next call (`iteration_shim.c`). It excludes the machine's other work. Compare it
//! through [`super::bound::cpu`].

use super::{shared_object, skipped, until, Options, Server};
use std::fmt::{Display, Formatter, Result};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The numbers in the file, as `iteration_shim.c` lists them.
const WANTED: usize = 0;
const BEGUN: usize = 1;
const ENDED: usize = 2;
const COUNTED: usize = 3;
const ITERATIONS: usize = 4;
const SUM: usize = 5;
const LONGEST: usize = 6;
const LONGEST_WALL: usize = 7;
const BELOW: usize = 9;
const BUCKETS: usize = 24;
const NUMBERS: usize = BELOW + BUCKETS;

/// The iterations of one server.
pub struct Iterations {
    file: File,
    path: PathBuf,
}

/// The iterations that began after the last [`Iterations::reset`], and have ended.
pub struct Counted {
    pub iterations: u64,
    /// Their total CPU time.
    pub sum: Duration,
    /// The CPU time of the longest iteration.
    pub longest: Duration,
    /// The wall time of that iteration, only to be printed: it includes other processes.
    wall: Duration,
    /// How many iterations took less than 2^n microseconds, but at least half of that.
    below: Vec<u64>,
}

impl Iterations {
    /// A server whose iterations are counted from the first one; `None`, and a message, without a C compiler. If the
    /// server cannot preload the library, no iterations are counted and a message says so; the rest of the test works.
    pub fn start(options: Options) -> Option<(Server, Self)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(shim) = shared_object("iteration_shim") else {
            skipped("bounds on CPU time", "there is no C compiler to build the library that counts it");
            return None;
        };
        let path = shim.with_extension(format!("{}.iterations", COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let counting = Self { file, path };
        counting.file.set_len(8 * u64::try_from(NUMBERS).unwrap()).unwrap();
        let server = options.preload(shim).env("ITERATIONS_FILE", counting.path.to_str().unwrap()).start();
        // The server has answered, so it has been in its loop.
        if counting.numbers()[BEGUN] == 0 {
            skipped("bounds on CPU time", "a preloaded library has no effect on this server");
        }
        Some((server, counting))
    }

    /// Resets the counts. An iteration that has begun is not counted, nor is the rest of one whose replies have already
    /// been read.
    pub fn reset(&self) {
        let next = self.numbers()[WANTED] + 1;
        self.file.write_all_at(&next.to_ne_bytes(), 0).unwrap();
    }

    /// The counts since the last reset. Waits until the current iteration ends, so that the one that replied is
    /// complete.
    pub fn counted(&self) -> Counted {
        let begun = self.numbers()[BEGUN];
        let numbers = until("the iteration ends", || Some(self.numbers()).filter(|now| now[ENDED] >= begun));
        let is_new = numbers[COUNTED] == numbers[WANTED];
        let of = |at: usize| if is_new { numbers[at] } else { 0 };
        Counted {
            iterations: of(ITERATIONS),
            sum: Duration::from_nanos(of(SUM)),
            longest: Duration::from_nanos(of(LONGEST)),
            wall: Duration::from_nanos(of(LONGEST_WALL)),
            below: (BELOW..NUMBERS).map(of).collect(),
        }
    }

    /// The CPU time of the longest iteration since the last reset.
    pub fn longest(&self) -> Duration {
        let counted = self.counted();
        println!("{counted}");
        counted.longest
    }

    /// The CPU time of the main thread in all iterations since the last reset. After one command, this is its cost,
    /// including reading it and replying.
    pub fn sum(&self) -> Duration {
        self.counted().sum
    }

    fn numbers(&self) -> Vec<u64> {
        let mut bytes = [0; 8 * NUMBERS];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes.chunks_exact(8).map(|eight| u64::from_ne_bytes(eight.try_into().unwrap())).collect()
    }
}

impl Display for Counted {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { iterations, sum, longest, wall, below } = self;
        write!(f, "{iterations} iterations, {sum:.1?} of CPU; the longest {longest:.1?} (wall time {wall:.1?});")?;
        let filled = below.iter().enumerate().filter(|(_, many)| **many > 0);
        filled.into_iter().try_for_each(|(at, many)| write!(f, " below {:?}: {many}", Duration::from_micros(1 << at)))
    }
}

impl Drop for Iterations {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
