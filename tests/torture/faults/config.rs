//! CONFIG SET of a setting to another value, and back after a while. The margin stays: it may become smaller only
//! while no lock is held.

use crate::site::Site;
use crate::world::World;

const SETTINGS: [(&str, &str, &str); 4] = [
    ("lock.retention-ms", "0", "400"),
    ("lock.place-ms", "0", "10000"),
    ("lock.max-waiters", "1", "5000"),
    ("hz", "200", "10"),
];

pub fn run(world: &World, site: &Site, which: usize) -> bool {
    let (name, value, usual) = SETTINGS[which];
    site.tell_all(&["CONFIG", "SET", name, value]);
    world.sleep(super::ms(400));
    site.tell_all(&["CONFIG", "SET", name, usual]);
    true
}
