"""Other implementations of TLS accept the certificates that Muster makes."""

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from admission.webhook.tls import certificate
from tests.unit.webhook.test_certificates import NAMES


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_accepts_the_chain_in_its_strict_mode(tmp_path: Path) -> None:
    made = certificate.self_made(["muster.muster-system.svc"], now=datetime.now(UTC))
    (tmp_path / "ca.pem").write_bytes(made.authority)
    (tmp_path / "leaf.pem").write_bytes(made.certificate)

    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.pem"]
    command += ["-verify_hostname", "muster.muster-system.svc", "leaf.pem"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


GO_VERIFIER = """
package main

import ("crypto/x509"; "encoding/pem"; "fmt"; "os")

func main() {
    roots := x509.NewCertPool()
    ca, _ := os.ReadFile("ca.pem")
    if !roots.AppendCertsFromPEM(ca) { fmt.Println("no authority"); os.Exit(1) }
    text, _ := os.ReadFile("leaf.pem")
    block, _ := pem.Decode(text)
    leaf, err := x509.ParseCertificate(block.Bytes)
    if err != nil { fmt.Println(err); os.Exit(1) }
    for _, name := range []string{"muster.muster-system.svc", "127.0.0.1"} {
        if _, err = leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
            fmt.Println(err); os.Exit(1)
        }
    }
}
"""


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("go") is None, reason="needs the Go toolchain")
def test_gos_own_verifier_accepts_the_chain_among_other_authorities(tmp_path: Path) -> None:
    first, made = (certificate.self_made(NAMES, now=datetime.now(UTC)) for _ in range(2))
    (tmp_path / "ca.pem").write_bytes(first.authority + made.authority)
    (tmp_path / "leaf.pem").write_bytes(made.certificate)
    (tmp_path / "main.go").write_text(GO_VERIFIER)

    done = subprocess.run(["go", "run", "main.go"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
