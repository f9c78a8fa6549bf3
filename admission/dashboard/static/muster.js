// What pages do beyond links and forms: go to the next page without building a document anew, open a level of the tree in
// place, keep themselves fresh, and remember a theme. Without scripts all of it is still there, a page at a time.

const policy = window.trustedTypes?.createPolicy("muster", { createHTML: (text) => text });

/** Parse what this server has rendered; nothing else is ever passed here. */
function parsed(text) {
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(text) : text;
  return template.content;
}

/** Fetch from this server; null where the session has ended, and somebody is asked for a token then. */
async function fetched(url, signal, ended = () => location.reload()) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, redirect: "manual", signal });
  if (answer.status === 401 || answer.type === "opaqueredirect") {
    ended();
    return null;
  }
  if (!answer.ok || !answer.headers.get("Content-Type")?.startsWith("text/html")) throw new Error(`${answer.status}`);
  return answer.text();
}

// Going elsewhere: what is between the header and the end of the page is fetched and put in place. Whatever is no page of
// ours, or does not come in time, the browser asks for itself.

const PATIENCE = 60_000;
let going = 0;
let here = location.pathname + location.search;

/** What is not put in place: a page that has others is built anew. */
function release(root) {
  const files = [...root.querySelectorAll("script[src], link[rel=stylesheet]")];
  const visitor = root.querySelector(".visitor")?.textContent;
  return [visitor, ...files.map((file) => file.getAttribute("src") ?? file.getAttribute("href"))].join(" ");
}

/** Show another page. scroll: how far down it is shown; push: whether it becomes a new entry of the history. */
async function go(url, { scroll = 0, push = true } = {}) {
  const mine = ++going;
  const main = document.querySelector("main");
  main.setAttribute("aria-busy", "true");
  try {
    const text = await fetched(url, AbortSignal.timeout(PATIENCE), () => location.assign(url));
    if (mine !== going || text === null) return;
    const fresh = parsed(text);
    const places = ["main", "header nav", "footer"];
    const [from, to] = [fresh, document].map((root) => places.map((place) => root.querySelector(place)));
    if ([...from, ...to].includes(null)) throw new Error("not a page");
    if (release(fresh) !== release(document)) throw new Error("of another release, or for somebody else");
    if (push) {
      history.replaceState({ scroll: scrollY }, "");
      history.pushState(null, "", url);
    }
    here = location.pathname + location.search;
    document.title = fresh.querySelector("title").textContent;
    to.forEach((place, at) => place.replaceChildren(...from[at].childNodes));
    bind();
    scrollTo(0, scroll);
    main.focus({ preventScroll: true });
  } catch {
    if (mine === going) location.assign(url);
  } finally {
    if (mine === going) main.removeAttribute("aria-busy");
  }
}

/** The address of what a form asks for, without what is left empty. */
function addressOf(form) {
  const url = new URL(form.action);
  url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== "")).toString();
  return url.href;
}

const isOurs = (url) => url.origin === location.origin && !url.hash;

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]:not([data-toggle])");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.altKey || link.target || link.hasAttribute("download") || !isOurs(new URL(link.href))) return;
  event.preventDefault();
  go(link.href);
});
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "get" || event.defaultPrevented) return;
  event.preventDefault();
  go(addressOf(form));
});
addEventListener("popstate", (event) => {
  if (location.pathname + location.search !== here) {
    go(location.href, { scroll: event.state?.scroll, push: false });
  } else {
    // A place within this page; or somebody went back and forth, and what was asked for is not wanted any more.
    going++;
    document.querySelector("main").removeAttribute("aria-busy");
  }
});

// What is switched on and off in place, and kept in the address: branches of the tree, and groups of a chart.

function asButton(twist) {
  twist.setAttribute("role", "button");
  if (twist.dataset.pressed) twist.setAttribute("aria-pressed", twist.dataset.pressed);
}

async function toggle(twist) {
  const url = twist.href;
  const branch = twist.dataset.toggle;
  const focused = twist.closest("tr").contains(document.activeElement);
  const on = document.activeElement === twist ? "[data-toggle]" : "a:not(.twist)";
  twist.setAttribute("aria-busy", "true");
  try {
    if (!(await renew(url))) return;
  } catch {
    location.href = url;
    return;
  }
  history.replaceState(history.state, "", url);
  here = location.pathname + location.search;
  const row = document.querySelector(`[data-toggle="${CSS.escape(branch)}"]`)?.closest("tr");
  if (focused) row?.querySelector(`th ${on}`)?.focus();
}

document.addEventListener("click", (event) => {
  const twist = event.target.closest("[data-toggle]");
  if (!twist || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  toggle(twist);
});
document.addEventListener("keydown", (event) => {
  const row = event.target.closest?.("[data-tree] tr");
  const twist = row?.querySelector("[data-toggle]");
  if (!row) return;
  const links = (to) => to?.querySelector("th a:not(.twist), th a")?.focus();
  const opened = twist?.getAttribute("aria-expanded") === "true";
  if (event.key === "ArrowDown") links(row.nextElementSibling);
  else if (event.key === "ArrowUp") links(row.previousElementSibling);
  else if ((event.key === "ArrowRight" && twist && !opened) || (event.key === "ArrowLeft" && opened)) toggle(twist);
  else if (event.key === " " && event.target === twist) toggle(twist);
  else return;
  event.preventDefault();
});

// Fresh pages: the parts marked `data-live` are fetched again when a stream of events says that something of them has
// changed, and every ten seconds where there is no stream; unless somebody is in the middle of something there.

const FRESH = 10_000;
const REST = 2_000;
const isWanted = () => localStorage.getItem("muster-fresh") !== "no";

function busy(part) {
  const chosen = getSelection();
  return (
    (part.contains(document.activeElement) && document.activeElement !== part) ||
    (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode))
  );
}

/** Put the live parts of a page in the place of those that are shown; false if they are not the same parts. */
async function renew(url, isBusy = () => false) {
  const mine = going;
  const parts = [...document.querySelectorAll("[data-live]")];
  const text = await fetched(url, AbortSignal.timeout(FRESH));
  if (text === null || mine !== going || isBusy()) return false;
  const fresh = parsed(text);
  const found = [...fresh.querySelectorAll("[data-live]")];
  if (found.length !== parts.length) return false;
  parts.forEach((part, at) => {
    const key = (one, number) => one.dataset.key ?? number;
    const unfolded = new Map([...part.querySelectorAll("details")].map((one, number) => [key(one, number), one.open]));
    const left = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    part.replaceChildren(...found[at].childNodes);
    part.querySelectorAll("details").forEach((one, number) => (one.open = unfolded.get(key(one, number)) ?? one.open));
    part.querySelectorAll(".scroll").forEach((one, number) => (one.scrollLeft = left[number] ?? 0));
    part.querySelectorAll("[data-toggle]").forEach(asButton);
    inZone(part);
    showCopies(part);
  });
  const time = fresh.querySelector("footer time");
  if (time) {
    document.querySelector("footer time").replaceWith(time);
    inZone(time.parentElement);
  }
  return true;
}

let stale = false; // something has changed that is not shown yet
let soonest = performance.now() + REST; // no earlier are the parts fetched again because of an event
let waiting = 0;

async function refresh() {
  if (document.hidden || !document.querySelector("[data-live-switch]") || !isWanted()) return;
  const shown = location.href;
  const isBusy = () => location.href !== shown || [...document.querySelectorAll("[data-live]")].some(busy);
  if (isBusy()) return;
  const began = performance.now();
  const wasStale = stale;
  let done = false;
  stale = false;
  try {
    done = await renew(shown, isBusy);
  } catch {
    // Away for a moment: what is shown says as of when it is.
  }
  if (wasStale && !done) stale = true;
  // A page that takes the server long is asked for less often, and never less often than without a stream.
  const ended = performance.now();
  soonest = ended + Math.min(Math.max(REST, 20 * (ended - began)), FRESH);
}

function changed() {
  stale = true;
  waiting ||= setTimeout(() => {
    waiting = 0;
    refresh();
  }, Math.max(0, soonest - performance.now()));
}

// The stream: one for what is in sight. It counts from its first message, which a proxy may keep back.

let stream = null;
let isStreaming = false;
let topics = "";

/** Listen to the changes of the page that is shown, if it is to be kept fresh and in sight. */
function listen() {
  const wanted = document.querySelector("[data-live-switch]")?.dataset.topics ?? "";
  const asked = document.hidden || !isWanted() ? "" : wanted;
  if (stream && (asked !== topics || stream.readyState === EventSource.CLOSED)) {
    stream.close();
    stream = null;
    isStreaming = false;
  }
  if (stream || !asked) return;
  topics = asked;
  stream = new EventSource(`/events?topics=${encodeURIComponent(asked)}`);
  stream.onmessage = () => {
    isStreaming = true;
    changed();
  };
  stream.onerror = () => (isStreaming = false);
}

setInterval(() => {
  listen();
  if (stale || !isStreaming) refresh();
}, FRESH);
document.addEventListener("visibilitychange", () => {
  listen();
  refresh();
});

// The theme: a cookie, so that the next page comes in it at once.

const themes = ["", "light", "dark"];
const names = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const button = document.querySelector("[data-theme-switch]");

function shown(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.textContent = names[theme];
}

if (button) {
  button.hidden = false;
  shown(document.documentElement.dataset.theme ?? "");
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "";
    const next = themes[(themes.indexOf(now) + 1) % themes.length];
    document.cookie = `muster-theme=${next}; path=/; max-age=31536000; samesite=strict`;
    shown(next);
  });
}

// Times: as they come, in UTC, or in the zone of the browser.

const zoneButton = document.querySelector("[data-zone-switch]");
const isLocal = () => localStorage.getItem("muster-times") === "local";
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const day = { year: "numeric", month: "2-digit", day: "2-digit" };
const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const local = new Intl.DateTimeFormat("sv-SE", { ...day, ...clock });

/** Write the times of a part of the page, or their tooltips where it says how long ago they are, in the chosen zone. */
function inZone(root) {
  root.querySelectorAll("time[datetime]").forEach((one) => {
    one.dataset.utc ??= one.title || one.textContent;
    const text = isLocal() ? local.format(new Date(one.dateTime)) : one.dataset.utc;
    if (one.title) one.title = text;
    else one.textContent = text;
  });
  root.querySelectorAll("[data-zone]").forEach((one) => (one.textContent = isLocal() ? zone : "UTC"));
}

function showZone() {
  zoneButton.textContent = isLocal() ? `Times: ${zone}` : "Times: UTC";
  inZone(document);
}

if (zoneButton && zone !== "UTC") {
  zoneButton.hidden = false;
  zoneButton.addEventListener("click", () => {
    localStorage.setItem("muster-times", isLocal() ? "utc" : "local");
    showZone();
  });
}

// Commands to copy; where the browser gives no clipboard, as over plain HTTP, they are only shown.

const showCopies = (root) => {
  if (navigator.clipboard) root.querySelectorAll("[data-copy]").forEach((one) => (one.hidden = false));
};

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (!copy) return;
  const label = copy.firstChild;
  try {
    await navigator.clipboard.writeText(copy.dataset.copy);
    label.textContent = "Copied";
  } catch {
    label.textContent = "Not allowed";
  }
  setTimeout(() => (label.textContent = "Copy"), 2_000);
});

// What has to be done for every page, as it comes.
function bind() {
  showZone();
  showCopies(document);
  document.querySelectorAll("[data-toggle]").forEach(asButton);
  const live = document.querySelector("[data-live-switch]");
  if (live) {
    live.hidden = false;
    document.querySelector("[data-live-label]").textContent = "kept fresh";
    live.checked = isWanted();
    live.addEventListener("change", () => {
      localStorage.setItem("muster-fresh", live.checked ? "yes" : "no");
      listen();
    });
  }
  listen();
}

bind();

// A choice from a list is enough; a name is searched for while it is typed, and the address follows.

const TYPED = 250;
let typed = 0;

document.addEventListener("change", (event) => {
  if (event.target.matches("form[data-search] select")) event.target.form.requestSubmit();
});
document.addEventListener("submit", () => clearTimeout(typed), true);
document.addEventListener("input", (event) => {
  if (!event.target.matches("form[data-search] input[type=search]")) return;
  clearTimeout(typed);
  typed = setTimeout(() => search(event.target.form), TYPED);
});

async function search(form) {
  const url = addressOf(form);
  const began = going;
  try {
    if (await renew(url, () => url !== addressOf(form))) {
      history.replaceState(history.state, "", url);
      here = location.pathname + location.search;
    }
  } catch {
    if (began === going) go(url);
  }
}
