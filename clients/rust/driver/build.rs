//! Passes the redis crate's version to the driver.

fn main() {
    let lock = std::fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let version = lock.split("name = \"redis\"\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    println!("cargo::rustc-env=REDIS_VERSION={}", version.unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=../Cargo.lock");
}
