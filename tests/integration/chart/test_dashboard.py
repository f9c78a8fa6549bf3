"""How the chart has the dashboard reached, and where it reads the books."""

import json

import pytest

from tests.integration.chart.charts import BOOKS, DASHBOARD, TLS, Helm, config, database_of, pod, rendered

pytestmark = pytest.mark.timeout(120, func_only=True)


def test_a_dashboard_as_it_comes_is_reached_by_nobody_but_who_forwards_its_port(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD)

    settings = config(objects, "dashboard").dashboard
    assert (settings.host, settings.certificate, settings.plain) == ("127.0.0.1", None, False)
    assert [port["name"] for port in objects["Service", "muster-dashboard"]["spec"]["ports"]] == ["metrics"]
    ingress = objects["NetworkPolicy", "muster-dashboard"]["spec"]["ingress"]
    assert [port["port"] for rule in ingress for port in rule["ports"]] == ["metrics"]
    assert ("PodDisruptionBudget", "muster-dashboard") not in objects


def test_a_dashboard_with_a_certificate_serves_tls_to_whom_the_network_lets_in(helm: Helm) -> None:
    proxies = '[{"podSelector": {"matchLabels": {"app": "oauth2-proxy"}}}]'
    own = ("dashboard.tls.authority=proxies-ca", "dashboard.sessions.secret=sessions", "dashboard.replicas=2")
    header = "settings.dashboard.user_header=X-Forwarded-User"

    objects = rendered(helm, DASHBOARD, TLS, *own, header, f"networkPolicy.dashboard={proxies}")

    settings = config(objects, "dashboard").dashboard
    mounts = {one["name"]: one["mountPath"] for one in pod(objects, "dashboard")["containers"][0]["volumeMounts"]}
    secrets = {
        one["name"]: one["secret"]["secretName"] for one in pod(objects, "dashboard")["volumes"] if "secret" in one
    }
    assert secrets == {"certificate": "pages-tls", "authority": "proxies-ca", "sessions": "sessions"}
    assert settings.host == "0.0.0.0"  # noqa: S104 - compared
    assert (settings.certificate, settings.key) == tuple(f"{mounts['certificate']}/tls.{end}" for end in ("crt", "key"))
    assert settings.authority == f"{mounts['authority']}/ca.crt"
    assert settings.session_keys == f"{mounts['sessions']}/keys"
    assert settings.user_header == "X-Forwarded-User"
    [pages] = [one for one in objects["Service", "muster-dashboard"]["spec"]["ports"] if one["name"] == "pages"]
    assert (pages["port"], pages["targetPort"], pages["appProtocol"]) == (443, "pages", "https")
    allowed = objects["NetworkPolicy", "muster-dashboard"]["spec"]["ingress"][0]
    assert allowed == {"ports": [{"protocol": "TCP", "port": "pages"}], "from": json.loads(proxies)}
    assert objects["PodDisruptionBudget", "muster-dashboard"]["spec"]["maxUnavailable"] == 1


def test_a_dashboard_behind_a_proxy_that_ends_tls_serves_plain_http(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, "settings.dashboard.plain=true")

    settings = config(objects, "dashboard").dashboard
    assert (settings.host, settings.plain, settings.certificate) == ("0.0.0.0", True, None)  # noqa: S104 - compared
    ports = [port["port"] for port in objects["Service", "muster-dashboard"]["spec"]["ports"]]
    assert ports == [80, 9090]


def test_the_dashboard_reads_the_books_as_another_user_if_there_is_one(helm: Helm) -> None:
    usual, other = (
        database_of(rendered(helm, DASHBOARD, "ledger.secret=books", *values), "dashboard")
        for values in ((), ("dashboard.ledger.secret=reader", "dashboard.ledger.key=dsn"))
    )

    assert usual == {"name": "books", "key": "url"}
    assert other == {"name": "reader", "key": "dsn"}


def test_the_dashboard_reads_a_file_where_the_controller_writes_it(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, "ledger.sqlite.size=1Gi")

    [term] = pod(objects, "dashboard")["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    controller = objects["Deployment", "muster-controller"]["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"] == controller
    assert config(objects, "dashboard").ledger.url == config(objects, "controller").ledger.url
    assert "affinity" not in pod(rendered(helm, DASHBOARD, BOOKS), "dashboard")
    mine = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "books"}}}
    given = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [mine]}}
    both = rendered(helm, DASHBOARD, "ledger.sqlite.size=1Gi", f"dashboard.affinity={json.dumps(given)}")
    assert pod(both, "dashboard")["affinity"]["podAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [mine, term]
    }


def test_an_ingress_leads_to_the_pages(helm: Helm) -> None:
    host = ("dashboard.ingress.enabled=true", "dashboard.ingress.host=muster.example.com")
    more = ("dashboard.ingress.className=nginx", "dashboard.ingress.tlsSecret=muster-tls")
    speaks = 'dashboard.ingress.annotations={"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}'

    objects = rendered(helm, DASHBOARD, TLS, *host, *more, speaks)

    ingress = objects["Ingress", "muster-dashboard"]
    [rule] = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = objects["Service", backend["name"]]
    assert rule["host"] == "muster.example.com"
    assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    assert ingress["spec"]["tls"] == [{"hosts": ["muster.example.com"], "secretName": "muster-tls"}]
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["metadata"]["annotations"] == {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
    assert not any(kind == "Ingress" for kind, _ in rendered(helm, DASHBOARD, TLS))
