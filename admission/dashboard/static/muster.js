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
    open.clear();
    bind();
    scrollTo(0, scroll);
    main.focus({ preventScroll: true });
  } catch {
    if (mine === going) location.assign(url);
  } finally {
    if (mine === going) main.removeAttribute("aria-busy");
  }
}

const isOurs = (url) => url.origin === location.origin && !url.hash;

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]:not([data-children])");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.altKey || link.target || link.hasAttribute("download") || !isOurs(new URL(link.href))) return;
  event.preventDefault();
  go(link.href);
});
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "get" || event.defaultPrevented) return;
  event.preventDefault();
  const url = new URL(form.action);
  url.search = new URLSearchParams(new FormData(form)).toString();
  go(url.href);
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

// The tree.

const open = new Set();

function below(row) {
  const level = Number(row.dataset.level);
  const found = [];
  for (let next = row.nextElementSibling; next && Number(next.dataset.level) > level; next = next.nextElementSibling) {
    found.push(next);
  }
  return found;
}

function asButton(twist) {
  if (twist.getAttribute("role") === "button") return;
  twist.setAttribute("role", "button");
  twist.setAttribute("aria-expanded", "false");
}

async function expand(twist) {
  const row = twist.closest("tr");
  const name = twist.dataset.children;
  const url = new URL(twist.href);
  url.searchParams.set("rows", "");
  twist.setAttribute("aria-busy", "true");
  try {
    const text = await fetched(url);
    if (text === null || twist.getAttribute("aria-expanded") === "true") return;
    const rows = parsed(`<table><tbody>${text}</tbody></table>`).querySelectorAll("tr");
    row.after(...rows);
    rows.forEach((one) => one.querySelectorAll("[data-children]").forEach(asButton));
    if (rows.length === 100) {
      const more = document.createElement("tr");
      more.dataset.level = String(Number(row.dataset.level) + 1);
      const cell = more.insertCell();
      cell.colSpan = 11;
      const link = document.createElement("a");
      link.href = twist.href;
      link.textContent = `More queues below ${name}`;
      cell.append(link);
      rows[rows.length - 1].after(more);
    }
    twist.setAttribute("aria-expanded", "true");
    open.add(name);
  } catch {
    location.href = twist.href;
  } finally {
    twist.removeAttribute("aria-busy");
  }
}

function collapse(twist) {
  below(twist.closest("tr")).forEach((row) => {
    row.querySelectorAll("[data-children]").forEach((one) => open.delete(one.dataset.children));
    row.remove();
  });
  twist.setAttribute("aria-expanded", "false");
  open.delete(twist.dataset.children);
}

function toggle(twist) {
  if (twist.getAttribute("aria-expanded") === "true") collapse(twist);
  else expand(twist);
}

document.addEventListener("click", (event) => {
  const twist = event.target.closest("[data-children]");
  if (!twist || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  toggle(twist);
});
document.addEventListener("keydown", (event) => {
  const row = event.target.closest?.("[data-tree] tr");
  const twist = row?.querySelector("[data-children]");
  if (!row) return;
  const links = (to) => to?.querySelector("th a:not(.twist), th a")?.focus();
  const opened = twist?.getAttribute("aria-expanded") === "true";
  if (event.key === "ArrowDown") links(row.nextElementSibling);
  else if (event.key === "ArrowUp") links(row.previousElementSibling);
  else if (event.key === "ArrowRight" && twist && !opened) expand(twist);
  else if (event.key === "ArrowLeft" && twist && opened) collapse(twist);
  else if (event.key === " " && event.target === twist) toggle(twist);
  else return;
  event.preventDefault();
});

// Fresh pages: the parts marked `data-live` are fetched again, unless somebody is in the middle of something there.

const FRESH = 10_000;
const isWanted = () => localStorage.getItem("muster-fresh") !== "no";

function busy(part) {
  const chosen = getSelection();
  return (
    (part.contains(document.activeElement) && document.activeElement !== part) ||
    (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) ||
    open.size > 0
  );
}

async function refresh() {
  if (document.hidden || !document.querySelector("[data-live-switch]") || !isWanted()) return;
  const mine = going;
  const parts = [...document.querySelectorAll("[data-live]")];
  if (parts.some(busy)) return;
  try {
    const text = await fetched(location.href, AbortSignal.timeout(FRESH));
    if (text === null || mine !== going) return;
    const fresh = parsed(text);
    const found = [...fresh.querySelectorAll("[data-live]")];
    if (found.length !== parts.length || parts.some(busy)) return;
    parts.forEach((part, at) => {
      const unfolded = [...part.querySelectorAll("details")].map((one) => one.open);
      const left = part.scrollLeft;
      part.replaceChildren(...found[at].childNodes);
      part.querySelectorAll("details").forEach((one, number) => (one.open = unfolded[number] ?? one.open));
      part.querySelectorAll("[data-children]").forEach(asButton);
      part.scrollLeft = left;
    });
    const time = fresh.querySelector("footer time");
    if (time) document.querySelector("footer time").replaceWith(time);
  } catch {
    // Away for a moment: what is shown says as of when it is.
  }
}

setInterval(refresh, FRESH);
document.addEventListener("visibilitychange", refresh);

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

// What has to be done for every page, as it comes.
function bind() {
  document.querySelectorAll("[data-children]").forEach(asButton);
  const live = document.querySelector("[data-live-switch]");
  if (live) {
    live.hidden = false;
    document.querySelector("[data-live-label]").textContent = "kept fresh";
    live.checked = isWanted();
    live.addEventListener("change", () => localStorage.setItem("muster-fresh", live.checked ? "yes" : "no"));
  }
}

bind();

// A choice from a list is enough; a text waits for the button, or Enter.
document.addEventListener("change", (event) => {
  if (event.target.matches("form[data-search] select")) event.target.form.requestSubmit();
});
