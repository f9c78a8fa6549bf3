"""Training jobs of Kubeflow (kubeflow.org): all replicas of a job are created together and are one gang.

With `schedulingPolicy.minAvailable` or `elasticPolicy.minReplicas` it starts with fewer. An MPIJob may create its
launcher only when all workers are ready (`launcherCreationPolicy: WaitForWorkersReady`); then the launcher is a wave of
its own. In version v2beta1 the launcher is a batch Job (mpi-operator `pkg/controller/mpi_job_controller.go`, v0.8;
training-operator `pkg/controller.v1/common/job.go`, v1.9).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from admission.api.kubernetes import active_deadline, jobs
from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.workloads.kinds import wave_templates
from admission.workloads.kinds.registry import Link, Member, Shape, WorkloadKind, is_kind, one_wave, replicas, wave

REPLICA_TYPE = "training.kubeflow.org/replica-type"
JOB_ROLE = "training.kubeflow.org/job-role"
"""The mpi-operator's label in place of a replica type (`pkg/controller/mpi_job_controller.go`, defaultLabels)."""

REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR = "training.kubeflow.org/operator-name"

LAUNCHER = "launcher"
SUSPEND = ("spec", "runPolicy", "suspend")
DEADLINE = ("spec", "runPolicy", active_deadline.FIELD)


def training(field: str) -> Callable[[Reader, Meta], Shape]:
    """Return a reader of jobs whose replicas are in a field of their spec."""

    def read(reader: Reader, _meta: Meta) -> Shape:
        spec = reader.child("spec")
        pods = sum(replicas(spec.entries(field)).values())
        return one_wave(pods, _least(spec, pods))

    return read


def templates(kind: str, field: str) -> Callable[[Reader, Meta], Iterator[PodTemplate]]:
    """Return a reader of the templates of a job's replicas, with the labels that the training-operator adds."""

    def read(reader: Reader, meta: Meta) -> Iterator[PodTemplate]:
        for role, spec in reader.child("spec").entries(field):
            leads = {JOB_ROLE: "master"} if role.lower() in ("master", "chief") else {}
            yield PodTemplate(
                path=("spec", field, role, "template"),
                body=spec.object("template"),
                pods=spec.integer("replicas", 1),
                name=f"{meta.name}-{role.lower()}",
                labels={
                    OPERATOR: f"{kind.lower()}-controller",
                    JOB_NAME: meta.name,
                    REPLICA_TYPE: role.lower(),
                    **leads,
                },
                part_labels={REPLICA_INDEX: 1},
            )

    return read


def mpi_templates(reader: Reader, meta: Meta) -> Iterator[PodTemplate]:
    """Yield the templates of an MPIJob's first wave."""
    spec = reader.child("spec")
    waits, works = spec.text("launcherCreationPolicy") == "WaitForWorkersReady", spec.flag("runLauncherAsWorker")
    found = list(templates("MPIJob", "mpiReplicaSpecs")(reader, meta))
    for template in found:
        if not (waits and len(found) > 1 and template.labels[REPLICA_TYPE] == LAUNCHER):
            is_training_operators = reader.text("apiVersion") == "kubeflow.org/v1"
            yield template if is_training_operators else _of_mpi_operator(template, meta, launcher_works=works)


def mpi_alone(obj: Json, roles: frozenset[str], running_roles: frozenset[str]) -> Json | None:
    """Return an MPIJob with some of its roles, which wait for nothing and start whole; None if it has none of them.

    None as well where the roles and those beside them would be two gangs.
    """
    spec = {name: part for name, part in obj["spec"].items() if name != "launcherCreationPolicy"}
    policy, wanted = Reader(spec).object("runPolicy"), roles | running_roles
    spec["runPolicy"] = {name: part for name, part in policy.items() if name != "schedulingPolicy"}
    replicas = {role: part for role, part in spec["mpiReplicaSpecs"].items() if role.lower() in wanted}
    if running_roles:
        given = {role: Reader(part).object("template") for role, part in replicas.items()}
        if not wave_templates.are_of_one_gang(given.values()):
            return None
        parts = {role: wave_templates.as_part(template, role.lower()) for role, template in given.items()}
        replicas = {role: {**part, "template": parts[role]} for role, part in replicas.items()}
    return {**obj, "spec": {**spec, "mpiReplicaSpecs": replicas}} if replicas else None


def mpi_running_roles(obj: Json, roles: Sequence[str]) -> tuple[str, ...]:
    """Return the roles beside which some of an MPIJob's run: the workers, which the launcher waits for."""
    return tuple(role for name in obj["spec"]["mpiReplicaSpecs"] if (role := name.lower()) not in roles)


def _of_mpi_operator(template: PodTemplate, meta: Meta, *, launcher_works: bool) -> PodTemplate:
    """Return a template with the labels that the mpi-operator adds (version v2beta1) in place of the others.

    launcher_works: `runLauncherAsWorker`, with which the launcher is the replica 0, and the workers follow.
    """
    role = template.labels[REPLICA_TYPE]
    labels = {OPERATOR: "mpi-operator", JOB_NAME: meta.name, JOB_ROLE: role}
    if role != LAUNCHER:
        return replace(template, labels=labels, first_parts={REPLICA_INDEX: int(launcher_works)})
    job, index = f"{meta.name}-{LAUNCHER}", {REPLICA_INDEX: "0"} if launcher_works else {}
    labels |= index | jobs.pod_labels(job, names.unknown_label(job))
    return replace(template, labels=labels, part_labels={})


def mpi(reader: Reader, _meta: Meta) -> Shape:
    """Return the waves of an MPIJob."""
    spec = reader.child("spec")
    by_role = {role.lower(): count for role, count in replicas(spec.entries("mpiReplicaSpecs")).items()}
    pods = sum(by_role.values())
    if spec.text("launcherCreationPolicy") == "WaitForWorkersReady" and pods > 1:
        launchers = by_role.get(LAUNCHER, 0)
        return {"": wave(pods - launchers), LAUNCHER: wave(launchers)}, {LAUNCHER: LAUNCHER}
    return one_wave(pods, _least(spec, pods))


def join_mpi(pod: Pod, links: Sequence[Link], parent: Parent) -> Member:
    """Return a pod's role: a pod made through a Job is the launcher."""
    labels = pod.meta.labels
    role = LAUNCHER if links else (labels.get(REPLICA_TYPE) or labels.get(JOB_ROLE, "")).lower()
    return Member(uid=parent.meta.uid, name=parent.meta.name, role=role)


def _least(spec: Reader, pods: int) -> int:
    scheduling = spec.child("runPolicy").child("schedulingPolicy")
    if "minAvailable" in scheduling:
        return min(scheduling.integer("minAvailable"), pods)
    elastic = spec.child("elasticPolicy")
    return min(elastic.integer("minReplicas"), pods) if "minReplicas" in elastic else pods


def _kind(kind: str, field: str) -> WorkloadKind:
    return WorkloadKind(
        kind=kind,
        group="kubeflow.org",
        versions=("v1",),
        plural=f"{kind.lower()}s",
        read=training(field),
        join=is_kind,
        fields=f"spec.{field}",
        suspend=SUSPEND,
        deadline=DEADLINE,
        templates=templates(kind, field),
    )


KINDS = (
    _kind("PyTorchJob", "pytorchReplicaSpecs"),
    _kind("TFJob", "tfReplicaSpecs"),
    _kind("XGBoostJob", "xgbReplicaSpecs"),
    _kind("PaddleJob", "paddleReplicaSpecs"),
    _kind("JAXJob", "jaxReplicaSpecs"),
    WorkloadKind(
        kind="MPIJob",
        group="kubeflow.org",
        versions=("v2beta1", "v1"),
        plural="mpijobs",
        read=mpi,
        join=join_mpi,
        fields="spec.mpiReplicaSpecs",
        suspend=SUSPEND,
        deadline=DEADLINE,
        templates=mpi_templates,
        alone=mpi_alone,
        running_roles=mpi_running_roles,
    ),
)
