//! A terminal of 80 columns in tmux that runs lock-top. Each has its own tmux server, on its own socket.

use std::path::PathBuf;
use std::process::Command;
use testkit::{skipped, temp_dir, until};

pub struct Screen {
    dir: PathBuf,
    high: usize,
}

impl Screen {
    /// Starts lock-top with these arguments; `None` if tmux is missing.
    pub fn start(test: &str, high: usize, args: &[&str]) -> Option<Self> {
        Self::start_in("exec 2>&1; \"$@\"; echo \"ended with $?\"; sleep 300", test, high, args)
    }

    /// Like [`Self::start`], but in a shell script whose arguments are the command.
    pub fn start_in(shell: &str, test: &str, high: usize, args: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped(test, "tmux is missing");
            return None;
        }
        let screen = Self { dir: temp_dir(), high };
        let size = ["-x", "80", "-y", &high.to_string()];
        let mut words = vec!["-f", "/dev/null", "-u", "new-session", "-d", "-s", "top"];
        words.extend(size);
        // The last output stays on the screen.
        words.extend(["env", "LC_ALL=C.UTF-8", "sh", "-c", shell, "sh", env!("CARGO_BIN_EXE_lock-top")]);
        words.extend(args);
        screen.tmux(&words);
        Some(screen)
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(self.dir.join("tmux")).args(words).output().expect("tmux runs");
        assert!(output.status.success(), "tmux {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The screen, line by line.
    pub fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "top"])
    }

    /// The screen with colour codes.
    pub fn raw(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e", "-t", "top"])
    }

    /// Whether the cursor is visible, and whether the terminal shows the alternate screen, which full-screen programs
    /// use.
    pub fn cursor_and_program(&self) -> (bool, bool) {
        let flags = self.tmux(&["display-message", "-p", "-t", "top", "#{cursor_flag} #{alternate_on}"]);
        let (cursor, program) = flags.trim().split_once(' ').unwrap();
        (cursor == "1", program == "1")
    }

    /// Sets the terminal's width in columns.
    pub fn widen(&self, columns: usize) {
        self.tmux(&["resize-window", "-t", "top", "-x", &columns.to_string()]);
    }

    /// Waits until all of these texts are on the screen.
    pub fn until_shows(&self, texts: &[&str]) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the screen", || {
                last = self.shows();
                texts.iter().all(|text| last.contains(text)).then_some(())
            });
        }));
        assert!(found.is_ok(), "the screen does not show {texts:?}:\n{last}");
        assert!(last.lines().count() <= self.high);
        last
    }

    /// Sends lock-top a signal, by its name.
    pub fn signal(&self, name: &str) {
        let shell = self.tmux(&["display-message", "-p", "-t", "top", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        let status = Command::new("kill").args(["-s", name, children.trim()]).status().unwrap();
        assert!(status.success(), "kill {children}");
    }

    /// Presses keys, by tmux's names for them.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "top"], keys].concat());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.dir.join("tmux")).arg("kill-server").output();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
