//! TLS: it works with the right certificate; with wrong settings, one line says which.

use crate::{complaint, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{free_port, skipped, temp_dir, Server};

/// An authority and a certificate for 127.0.0.1, created by openssl; `None` if openssl is missing.
fn certificates(dir: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let (ca, cert, key) = (dir.join("ca.pem"), dir.join("cert.pem"), dir.join("key.pem"));
    let script = "set -e; cd \"$0\"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=authority
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out req.pem -subj /CN=server
        printf 'subjectAltName=IP:127.0.0.1\\n' >ext
        openssl x509 -req -in req.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cert.pem";
    Command::new("openssl").arg("version").output().ok()?;
    let output = Command::new("sh").args(["-c", script]).arg(dir).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((ca, cert, key))
}

#[test]
fn tls_works_and_each_wrong_setting_is_named() {
    let dir = temp_dir();
    let Some((ca, cert, key)) = certificates(&dir) else { return skipped("tls", "openssl is missing") };
    let [ca, cert, key] = [&ca, &cert, &key].map(|path| path.to_str().unwrap());
    let port = free_port();
    let args = ["--tls-port", &port.to_string(), "--tls-cert-file", cert, "--tls-key-file", key];
    let server = Server::with().args(&args).args(&["--tls-ca-cert-file", ca, "--tls-auth-clients", "no"]).try_start();
    let server = match server {
        Ok(server) => server,
        Err(log) => return skipped("tls", log.lines().last().unwrap_or("the server has no TLS")),
    };
    let (secure, plain) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", server.port()));

    assert!(json(&["--tls", "--cacert", ca, &secure])["servers"][0]["error"].is_null());
    assert!(json(&["--insecure", &format!("rediss://{secure}")])["servers"][0]["error"].is_null());

    let said = complaint(&[&secure]);
    assert!(said.starts_with(&format!("{secure}: ")) && said.contains("--tls"), "{said}");
    let said = complaint(&["--tls", &secure]);
    assert!(said.contains("certificate signed by an unknown authority; see --cacert"), "{said}");
    let said = complaint(&["--tls", "--cacert", ca, &plain]);
    assert!(said.contains("does it speak TLS?"), "{said}");
    std::fs::remove_dir_all(dir).unwrap();
}
