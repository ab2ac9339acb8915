//! The state of the terminal view, and what a key does to it. Nothing here reads a terminal or a server.

use crate::action::{Action, What};
use crate::graph::Graph;
use crate::lines::{self, Glyphs, Row};
use crate::model::{sorted, By, Lock, Name, Placed, Server};
use crate::text::show;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What the arrow keys move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    Locks,
    /// The holders and the queue of the selected lock.
    Queue,
}

/// What is shown below the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    Queue,
    Picture,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialog {
    None,
    Help,
    Confirm(Action),
}

/// What a key asks of the rest of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Quit,
    Suspend,
    /// Another lock was selected: its queue must be read.
    Select(Option<(String, Name)>),
    Sort(By),
    All(bool),
    Act(Action),
}

pub struct App {
    pub servers: Vec<Server>,
    pub graph: Graph,
    pub by: By,
    /// Whether locks without waiters are shown too.
    pub all: bool,
    pub focus: Focus,
    pub lower: Lower,
    pub dialog: Dialog,
    /// The newest outcome or hint, in the last line.
    pub status: Option<String>,
    /// A line about the Sentinels, if they cannot be asked.
    pub sentinels: Option<String>,
    pub read_only: bool,
    pub color: bool,
    pub glyphs: Glyphs,
    selected: Option<(String, Name)>,
    /// Where the selected lock is, or was before it disappeared.
    place: usize,
    /// The selected row of the queue.
    pub row: usize,
}

impl App {
    pub fn new(by: By, all: bool, read_only: bool, color: bool, glyphs: Glyphs) -> Self {
        Self {
            servers: Vec::new(),
            graph: Graph::default(),
            by,
            all,
            focus: Focus::Locks,
            lower: Lower::Queue,
            dialog: Dialog::None,
            status: None,
            sentinels: None,
            read_only,
            color,
            glyphs,
            selected: None,
            place: 0,
            row: 0,
        }
    }

    /// Applies the servers' replies. Returns the newly selected lock, if it changed.
    pub fn show(&mut self, servers: Vec<Server>) -> Option<Effect> {
        self.graph = Graph::of(&servers);
        self.servers = servers;
        let locks = self.names();
        let place = self.selected.as_ref().and_then(|wanted| locks.iter().position(|name| name == wanted));
        let last = locks.len().saturating_sub(1);
        self.place = place.unwrap_or(self.place).min(last);
        self.row = self.row.min(self.rows().saturating_sub(1));
        self.select(locks.get(self.place).cloned())
    }

    pub fn locks(&self) -> Vec<Placed<'_>> {
        sorted(&self.servers, self.by)
    }

    fn names(&self) -> Vec<(String, Name)> {
        let address = |at: usize| self.servers.get(at).map(|server| server.address.clone()).unwrap_or_default();
        self.locks().into_iter().map(|(at, lock)| (address(at), lock.name.clone())).collect()
    }

    /// The position of the selected lock in the list.
    pub fn place(&self) -> usize {
        self.place
    }

    pub fn selected(&self) -> Option<Placed<'_>> {
        self.locks().get(self.place).copied()
    }

    fn rows(&self) -> usize {
        self.selected().map_or(0, |(_, lock)| lines::queue(lock, 80).len())
    }

    fn select(&mut self, name: Option<(String, Name)>) -> Option<Effect> {
        if self.selected == name {
            return None;
        }
        self.row = 0;
        self.selected.clone_from(&name);
        Some(Effect::Select(name))
    }

    pub fn on_key(&mut self, key: KeyEvent) -> Option<Effect> {
        // No other key with Ctrl or Alt does anything, least of all `y`.
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return match key.code {
                KeyCode::Char('c') => Some(Effect::Quit),
                KeyCode::Char('z') => Some(Effect::Suspend),
                _ => None,
            };
        }
        match std::mem::replace(&mut self.dialog, Dialog::None) {
            Dialog::None => {}
            Dialog::Help => return None,
            Dialog::Confirm(action) => {
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    self.status = Some(format!("sent: {}", action.text()));
                    return Some(Effect::Act(action));
                }
                self.status = Some("nothing was sent".into());
                return None;
            }
        }
        self.status = None;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Effect::Quit),
            KeyCode::Char('?' | 'h') => self.dialog = Dialog::Help,
            KeyCode::Char('s') => {
                self.by = self.by.next();
                self.place = self.place_of_selected();
                return Some(Effect::Sort(self.by));
            }
            KeyCode::Char('a') => {
                self.all = !self.all;
                return Some(Effect::All(self.all));
            }
            KeyCode::Char('v') => {
                self.lower = if self.lower == Lower::Queue { Lower::Picture } else { Lower::Queue };
                self.focus = Focus::Locks;
            }
            KeyCode::Tab | KeyCode::Enter => {
                self.focus = if self.focus == Focus::Locks { Focus::Queue } else { Focus::Locks };
                self.lower = Lower::Queue;
            }
            KeyCode::Char('r') => self.ask(Self::release),
            KeyCode::Char('c') => self.ask(Self::cancel),
            KeyCode::Char('C') => self.ask(Self::cancel_channel),
            code => return self.go(code),
        }
        None
    }

    fn place_of_selected(&self) -> usize {
        let names = self.names();
        self.selected.as_ref().and_then(|wanted| names.iter().position(|name| name == wanted)).unwrap_or(0)
    }

    /// Moves the selection.
    fn go(&mut self, code: KeyCode) -> Option<Effect> {
        let (at, rows) = match self.focus {
            Focus::Locks => (self.place, self.locks().len()),
            Focus::Queue => (self.row, self.rows()),
        };
        let to = match code {
            KeyCode::Down | KeyCode::Char('j') => at.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::PageDown => at.saturating_add(10),
            KeyCode::PageUp => at.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => rows,
            _ => return None,
        };
        let to = to.min(rows.saturating_sub(1));
        match self.focus {
            Focus::Queue => {
                self.row = to;
                None
            }
            Focus::Locks => {
                self.place = to;
                let name = self.names().get(to).cloned();
                self.select(name)
            }
        }
    }

    /// Opens the confirmation of an action, or shows why it is not possible.
    fn ask(&mut self, what: fn(&Self, &Lock) -> Asked) {
        let found = if self.read_only {
            Err("started with --read-only: nothing can be sent")
        } else {
            self.selected().ok_or("no lock is selected").and_then(|(at, lock)| {
                let address = self.servers.get(at).map(|server| server.address.clone()).unwrap_or_default();
                let (what, who) = what(self, lock)?;
                Ok(Action { address, name: lock.name.clone(), what, who })
            })
        };
        match found {
            Ok(action) => self.dialog = Dialog::Confirm(action),
            Err(why) => self.status = Some(why.into()),
        }
    }

    /// The selected row of the queue.
    fn at_row<'a>(&self, lock: &'a Lock) -> Row<'a> {
        let rows = if self.focus == Focus::Queue { lines::queue(lock, 80) } else { Vec::new() };
        rows.get(self.row).map_or(Row::None, |(_, row)| *row)
    }

    fn release(&self, lock: &Lock) -> Asked {
        if lock.is_foreign() {
            return Ok((What::Delete, lock.holder_label()));
        }
        let holder = match (self.at_row(lock), lock.holders.as_slice()) {
            (Row::Holder(holder), _) | (_, [holder]) => holder,
            (_, []) => return Err("nobody holds it"),
            _ => return Err("it has several holders: select one with Tab and the arrow keys"),
        };
        let token = holder.token.ok_or("its token is not known: LOCK.INFO is needed")?;
        Ok((What::Release { token }, holder.who.long_label()))
    }

    fn cancel(&self, lock: &Lock) -> Asked {
        match self.at_row(lock) {
            Row::Waiter(waiter) => {
                let id =
                    waiter.id.clone().ok_or("this waiter has no ID; CLIENT KILL ID and its number end its wait")?;
                Ok((What::Cancel { id }, waiter.who.long_label()))
            }
            Row::Holder(_) => Err("this one holds the lock: r releases it"),
            Row::None => Err("select a waiter with Tab and the arrow keys"),
        }
    }

    fn cancel_channel(&self, lock: &Lock) -> Asked {
        match self.at_row(lock) {
            Row::Waiter(waiter) => {
                let channel = waiter.channel.clone().ok_or("this waiter is blocked: it has no channel")?;
                let who = format!("everybody who waits via {}", show(&channel));
                Ok((What::CancelChannel { channel }, who))
            }
            _ => Err("select a waiter with Tab and the arrow keys"),
        }
    }
}

/// The action and its target, or why it is not possible.
type Asked = Result<(What, String), &'static str>;

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::model::tests::{lock, party};
    use crate::model::Waiter;

    pub fn app(locks: Vec<Lock>) -> App {
        let mut app = App::new(By::Waiters, false, false, false, lines::UNICODE);
        let server = Server { address: "127.0.0.1:6379".into(), locks, ..Server::default() };
        app.show(vec![server]);
        app
    }

    pub fn press(app: &mut App, keys: &str) -> Option<Effect> {
        let mut last = None;
        for key in keys.chars() {
            let code = match key {
                '\t' => KeyCode::Tab,
                '\x1b' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            last = app.on_key(KeyEvent::from(code));
        }
        last
    }

    fn two() -> Vec<Lock> {
        let mut second = lock("b", party(3, "carol"), vec![party(4, "dave"), party(5, "")]);
        second.queue.as_mut().unwrap()[1].id = None;
        vec![lock("a", party(1, "alice"), vec![party(2, "bob"), party(6, "x"), party(7, "y")]), second]
    }

    fn key_of(app: &App) -> Vec<u8> {
        app.selected().unwrap().1.name.key.clone()
    }

    #[test]
    fn a_release_needs_yes_and_the_shown_token() {
        let mut app = app(two());
        assert_eq!(press(&mut app, "r"), None);
        let Dialog::Confirm(asked) = app.dialog.clone() else { panic!("no confirmation") };
        assert_eq!(asked.text(), "LOCK.RELEASE a 7");
        // The lock is handed off while the question is open: the answer still concerns the grant that was shown.
        let mut passed = two();
        passed[0].holders[0].token = Some(8);
        app.show(vec![Server { address: "127.0.0.1:6379".into(), locks: passed, ..Server::default() }]);
        assert_eq!(press(&mut app, "y"), Some(Effect::Act(asked)));
        for no in ["n", "r", "\x1b", "\t", "q"] {
            press(&mut app, "r");
            assert_eq!(press(&mut app, no), None, "{no:?}");
            assert_eq!(app.dialog, Dialog::None);
        }
    }

    #[test]
    fn a_foreign_lock_is_deleted_but_not_when_read_only() {
        let mut locks = two();
        (locks[0].state, locks[0].holders) = (Some("foreign".into()), vec![]);
        let mut app = app(locks);
        press(&mut app, "r");
        assert!(matches!(&app.dialog, Dialog::Confirm(action) if action.text() == "DEL a"));
        press(&mut app, "n");
        app.read_only = true;
        press(&mut app, "r");
        assert_eq!((app.dialog.clone(), app.status.as_deref().unwrap().contains("--read-only")), (Dialog::None, true));
    }

    #[test]
    fn a_waiter_is_cancelled_by_its_id_or_its_channel() {
        let mut locks = two();
        locks[1].queue.as_mut().unwrap()[0].channel = Some(b"ch".to_vec());
        let mut app = app(locks);
        press(&mut app, "c");
        assert!(app.status.as_deref().unwrap().starts_with("select a waiter"));
        // The holder, the heading, the first waiter.
        press(&mut app, "j\tjjc");
        assert!(
            matches!(&app.dialog, Dialog::Confirm(action) if action.text() == "LOCK.CANCEL b 4711"),
            "{:?}",
            app.dialog
        );
        press(&mut app, "nC");
        assert!(matches!(&app.dialog, Dialog::Confirm(action) if action.text() == "LOCK.CANCEL b CHANNEL ch"));
        press(&mut app, "njc");
        assert!(app.status.as_deref().unwrap().contains("no ID"));
        press(&mut app, "C");
        assert!(app.status.as_deref().unwrap().contains("no channel"));
        press(&mut app, "kkkc");
        assert!(app.status.as_deref().unwrap().contains("r releases"));
    }

    #[test]
    fn one_of_several_holders_has_to_be_selected() {
        let mut locks = two();
        let other = crate::model::Holder { token: Some(9), ..locks[0].holders[0].clone() };
        locks[0].holders.push(other);
        let mut app = app(locks);
        press(&mut app, "r");
        assert!(app.status.as_deref().unwrap().contains("several holders"));
        press(&mut app, "\tjr");
        assert!(matches!(&app.dialog, Dialog::Confirm(action) if action.text() == "LOCK.RELEASE a 9"));
    }

    #[test]
    fn the_selection_follows_its_lock() {
        let mut app = app(two());
        assert_eq!(key_of(&app), b"a");
        let name = Name { db: 0, key: b"b".to_vec() };
        let address = "127.0.0.1:6379".to_string();
        assert_eq!(press(&mut app, "j"), Some(Effect::Select(Some((address.clone(), name)))));
        let mut grown = two();
        grown[1].waiters = Some(50);
        app.show(vec![Server { address: address.clone(), locks: grown, ..Server::default() }]);
        assert_eq!((key_of(&app), app.place()), (b"b".to_vec(), 0));
        let effect = app.show(vec![Server { address, locks: vec![two().remove(0)], ..Server::default() }]);
        assert!(matches!(effect, Some(Effect::Select(Some((_, name)))) if name.key == b"a"));
        assert_eq!(app.show(vec![]), Some(Effect::Select(None)));
        press(&mut app, "jkr\tjc");
        assert!(app.selected().is_none());
    }

    #[test]
    fn keys_sort_and_show_all_and_leave() {
        let mut app = app(two());
        assert_eq!(press(&mut app, "s"), Some(Effect::Sort(By::Wait)));
        assert_eq!(press(&mut app, "s"), Some(Effect::Sort(By::Held)));
        assert_eq!(press(&mut app, "s"), Some(Effect::Sort(By::Waiters)));
        assert_eq!(press(&mut app, "a"), Some(Effect::All(true)));
        press(&mut app, "v");
        assert_eq!(app.lower, Lower::Picture);
        press(&mut app, "?");
        assert_eq!((app.dialog.clone(), press(&mut app, "q")), (Dialog::Help, None));
        assert_eq!(press(&mut app, "q"), Some(Effect::Quit));
        press(&mut app, "r");
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert_eq!(app.on_key(control('z')), Some(Effect::Suspend));
        assert_eq!(app.on_key(control('y')), None, "no yes");
        assert!(matches!(app.dialog, Dialog::Confirm(_)), "the question is still open");
        assert_eq!(app.on_key(control('c')), Some(Effect::Quit));
    }

    #[test]
    fn a_waiter_in_the_queue_is_a_waiter_row() {
        let only = Lock { queue: Some(vec![Waiter::default()]), ..Lock::default() };
        let rows = lines::queue(&only, 80);
        assert!(matches!(rows.last().unwrap().1, Row::Waiter(_)));
    }
}
