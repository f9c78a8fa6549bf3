package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	core "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const timePerWorld = 20 * time.Second

// A world and the pods to be placed in it: README.md says what each key is.
type world struct {
	Version              string
	Gates                map[string]bool
	Nodes                []*corev1.Node
	Namespaces           []*corev1.Namespace
	Pods                 []*corev1.Pod
	PVs                  []*corev1.PersistentVolume
	PVCs                 []*corev1.PersistentVolumeClaim
	StorageClasses       []*storagev1.StorageClass
	CSINodes             []*storagev1.CSINode
	CSIDrivers           []*storagev1.CSIDriver
	CSIStorageCapacities []*storagev1.CSIStorageCapacity
	VolumeAttachments    []*storagev1.VolumeAttachment
	ResourceSlices       []*resourceapi.ResourceSlice
	DeviceClasses        []*resourceapi.DeviceClass
	ResourceClaims       []*resourceapi.ResourceClaim
	Gang                 []member
}

type member struct {
	Pod  *corev1.Pod
	Node string
}

type judgement struct {
	Pods  []placement `json:"pods,omitzero"`
	Error string      `json:"error,omitempty"`
}

type placement struct {
	Fits    []string           `json:"fits"`
	Refused map[string]refusal `json:"refused"`
	Node    string             `json:"node"`
	Error   string             `json:"error,omitempty"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// filters answers one world a line until its input ends, with the scheduler
// that kube-scheduler has linked in.
func filters(in io.Reader, out io.Writer) error {
	// What plugins log is not asked for, and who asks may not read it.
	klog.SetLogger(klog.New(nil))
	return answerLines(in, out, func(line []byte) (judgement, error) { return judged(line), nil })
}

func judged(line []byte) (given judgement) {
	defer func() {
		if reason := recover(); reason != nil {
			given = judgement{Error: fmt.Sprint("panic: ", reason)}
		}
	}()
	var asked world
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		return judgement{Error: err.Error()}
	}
	restore, err := setGates(asked.Gates)
	if err != nil {
		return judgement{Error: err.Error()}
	}
	defer restore()
	placements, err := asked.placements()
	if err != nil {
		return judgement{Error: err.Error()}
	}
	return judgement{Pods: placements}
}

func setGates(gates map[string]bool) (restore func(), err error) {
	known, before := utilfeature.DefaultMutableFeatureGate.GetAll(), map[string]bool{}
	for name := range gates {
		if _, ok := known[featuregate.Feature(name)]; !ok {
			return nil, fmt.Errorf("unknown feature gate %q", name)
		}
		before[name] = utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
	}
	return func() {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(before); err != nil {
			panic(err)
		}
	}, utilfeature.DefaultMutableFeatureGate.SetFromMap(gates)
}

func (w *world) placements() ([]placement, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timePerWorld)
	defer cancel()
	scheduler, err := w.scheduler(ctx)
	if err != nil {
		return nil, err
	}
	found := []placement{}
	for i, asked := range w.Gang {
		pod, err := created(asked.Pod)
		if err != nil {
			return nil, fmt.Errorf("gang[%d]: %w", i, err)
		}
		placed, err := cycle(ctx, scheduler, pod, asked.Node)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		found = append(found, placed)
	}
	return found, nil
}

// scheduler is kube-scheduler's own, with its default profile, as it would be
// after its informers have listed this world.
func (w *world) scheduler(ctx context.Context) (*scheduler.Scheduler, error) {
	pods := []*corev1.Pod{}
	for i, pod := range w.Pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue // kube-scheduler's informer does not ask for these.
		}
		stored, err := created(pod)
		if err != nil {
			return nil, fmt.Errorf("pods[%d]: %w", i, err)
		}
		pods = append(pods, stored)
	}
	// Only to record the allocation of claims; what is read comes by informers.
	client := fake.NewSimpleClientset(objects(w.ResourceClaims)...)
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, err := range []error{
		listed(factory, w.Nodes),
		listed(factory, w.Namespaces),
		listed(factory, pods),
		listed(factory, w.PVs),
		listed(factory, w.PVCs),
		listed(factory, w.StorageClasses),
		listed(factory, w.CSINodes),
		listed(factory, w.CSIDrivers),
		listed(factory, w.CSIStorageCapacities),
		listed(factory, w.VolumeAttachments),
		listed(factory, w.ResourceSlices),
		listed(factory, w.DeviceClasses),
		listed(factory, w.ResourceClaims),
	} {
		if err != nil {
			return nil, err
		}
	}
	return scheduler.New(ctx, client, factory, nil, noRecorder)
}

// created returns the pod as the API server stores it: with defaults, and
// matchLabelKeys in its selectors; and with the status that it came with.
func created(given *corev1.Pod) (*corev1.Pod, error) {
	if given == nil {
		return nil, errors.New("no pod")
	}
	pod, internal := given.DeepCopy(), &core.Pod{}
	identify(pod)
	legacyscheme.Scheme.Default(pod)
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return nil, err
	}
	podregistry.Strategy.PrepareForCreate(context.Background(), internal)
	if invalid := podregistry.Strategy.Validate(context.Background(), internal); len(invalid) > 0 {
		return nil, fmt.Errorf("pod %s: %w", internal.Name, invalid.ToAggregate())
	}
	status := pod.Status
	if err := legacyscheme.Scheme.Convert(internal, pod, nil); err != nil {
		return nil, err
	}
	if status.QOSClass == "" {
		status.QOSClass = pod.Status.QOSClass
	}
	pod.Status = status
	return stored(pod)
}

// identify gives what the API server gives to every object, unless it has it.
func identify(object metav1.Object) {
	if object.GetUID() == "" {
		object.SetUID(types.UID(key(object)))
	}
	if object.GetResourceVersion() == "" {
		object.SetResourceVersion("1")
	}
}

func key(object metav1.Object) string {
	return cache.MetaObjectToName(object).String()
}

type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// stored returns an object as it comes back from the API server. What is
// written of a quantity is its canonical form, which is calculated with
// otherwise than what was read: 1.5Gi becomes 1536Mi.
func stored[T any, P object[T]](given P) (P, error) {
	text, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	read := P(new(T))
	return read, json.Unmarshal(text, read)
}

func objects[T any, P object[T]](given []P) []runtime.Object {
	found := []runtime.Object{}
	for _, one := range given {
		identify(one)
		found = append(found, one.DeepCopyObject())
	}
	return found
}

// listed makes the factory's informer of a kind one that knows these objects.
func listed[T any, P object[T]](factory informers.SharedInformerFactory, given []P) error {
	kind := P(new(T))
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	informer := still{cache.NewSharedIndexInformer(nil, kind, 0, indexers)}
	seen := sets.New[string]()
	for _, one := range given {
		identify(one)
		legacyscheme.Scheme.Default(one)
		if one.GetName() == "" || seen.Has(key(one)) {
			return fmt.Errorf("%T %q has no name or one that another has", one, key(one))
		}
		seen.Insert(key(one))
		read, err := stored(one)
		if err != nil {
			return err
		}
		if err := informer.GetIndexer().Add(read); err != nil {
			return err
		}
	}
	factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return informer })
	return nil
}

// still is an informer that has listed all there is and sees no change. Each
// handler is told at once: nothing has to be started or waited for.
type still struct {
	cache.SharedIndexInformer
}

func (s still) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	keys := s.GetIndexer().ListKeys()
	slices.Sort(keys)
	for _, name := range keys {
		one, _, err := s.GetIndexer().GetByKey(name)
		if err != nil {
			return nil, err
		}
		handler.OnAdd(one, true)
	}
	return done{}, nil
}

func (s still) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, _ time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

func (s still) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, _ cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

func (still) HasSynced() bool { return true }

type done struct{}

func (done) HasSynced() bool { return true }
func (done) Name() string    { return "listed" }

func (done) Done() <-chan struct{} {
	closed := make(chan struct{})
	close(closed)
	return closed
}

// cycle is a scheduling cycle of a pod, without scores and preemption: the
// order of calls is that of schedulePod and assumeAndReserve in
// pkg/scheduler/schedule_one.go. Of its binding cycle PreBind is run where
// it allocates claims, which the next pod may share, and waits for no volumes.
func cycle(ctx context.Context, sched *scheduler.Scheduler, pod *corev1.Pod, wanted string) (placement, error) {
	profile := sched.Profiles[corev1.DefaultSchedulerName]
	snapshot, ok := profile.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return placement{}, fmt.Errorf("a snapshot is a %T", profile.SnapshotSharedLister())
	}
	if err := sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return placement{}, err
	}
	state := framework.NewCycleState()
	found, err := fits(ctx, profile, state, pod)
	if err != nil {
		return placement{Fits: []string{}, Refused: map[string]refusal{}, Error: err.Error()}, nil
	}
	if wanted == "" && len(found.Fits) > 0 {
		wanted = found.Fits[0]
	}
	if !slices.Contains(found.Fits, wanted) {
		return found, nil
	}
	if status := assume(ctx, sched, profile, state, pod, wanted); !status.IsSuccess() {
		found.Error = fmt.Sprintf("%s: %s", status.Plugin(), status.Message())
		return found, nil
	}
	found.Node = wanted
	return found, nil
}

func fits(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *corev1.Pod) (placement, error) {
	found := placement{Fits: []string{}, Refused: map[string]refusal{}}
	infos, err := profile.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return found, err
	}
	only, status, leftOut := profile.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return found, status.AsError()
	}
	for _, info := range infos {
		name := info.Node().Name
		switch {
		case !status.IsSuccess():
			found.Refused[name] = refused(status, leftOut)
		case !only.AllNodes() && !only.NodeNames.Has(name):
			reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(leftOut))
			found.Refused[name] = refused(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason), leftOut)
		default:
			on := profile.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
			if !on.IsSuccess() && !on.IsRejected() {
				return found, on.AsError()
			}
			if on.IsSuccess() {
				found.Fits = append(found.Fits, name)
			} else {
				found.Refused[name] = refused(on, nil)
			}
		}
	}
	slices.Sort(found.Fits)
	return found, nil
}

func refused(status *fwk.Status, leftOut sets.Set[string]) refusal {
	plugin := status.Plugin()
	if plugin == "" {
		plugin = strings.Join(sets.List(leftOut), ",")
	}
	reasons := slices.Clone(status.Reasons())
	slices.Sort(reasons) // Those of resources come in the order of a map.
	return refusal{Plugin: plugin, Reasons: reasons}
}

func assume(
	ctx context.Context, sched *scheduler.Scheduler, profile framework.Framework, state fwk.CycleState,
	pod *corev1.Pod, node string,
) *fwk.Status {
	logger, pod := klog.FromContext(ctx), pod.DeepCopy()
	pod.Spec.NodeName = node
	recordNodeResources(logger, state, pod, node)
	if err := sched.Cache.AssumePod(logger, pod); err != nil {
		return fwk.AsStatus(err)
	}
	status := profile.RunReservePluginsReserve(ctx, state, pod, node)
	if status.IsSuccess() && len(pod.Spec.ResourceClaims) > 0 && len(pod.Spec.Volumes) == 0 {
		// PreBind writes to its status, too.
		pods := profile.ClientSet().CoreV1().Pods(pod.Namespace)
		if _, err := pods.Create(ctx, pod.DeepCopy(), metav1.CreateOptions{}); err != nil {
			return fwk.AsStatus(err)
		}
		status = profile.RunPreBindPlugins(ctx, state, pod, node)
	}
	if !status.IsSuccess() {
		profile.RunReservePluginsUnreserve(ctx, state, pod, node)
		if err := sched.Cache.ForgetPod(logger, pod); err != nil {
			return fwk.AsStatus(err)
		}
	}
	return status
}
