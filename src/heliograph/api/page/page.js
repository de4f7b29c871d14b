"use strict";
// Keeps the page as the mirror is, and acts by the verbs of /v1. It holds nothing but the last
// answers: a tab that is open for a day is as large as one that was opened just now.
(() => {
  const LIVE_MS = 3000;
  const HIDDEN_MS = 30000;
  const SLOW_MS = 60000;
  const AGAIN_MS = 1000;
  const ANSWER_MS = 10000;
  const CLUSTERS_MS = 180000; // What asks clusters that are gone waits for their time-outs.
  const TYPING_MS = 250;
  const ROWS_MAX = 200;
  const TOKEN = "heliograph.token";
  const byId = (id) => document.getElementById(id);
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("heliograph", { createHTML: (text) => text })
    : { createHTML: (text) => text };

  // -- asking

  class Refused extends Error {
    constructor(status, message) {
      super(message);
      this.status = status;
    }
  }

  // The token stands in a header and never in a cookie: no other page can send it.
  async function ask(path, { method = "GET", body, headers = {}, wait = ANSWER_MS } = {}) {
    const sent = new Headers(headers);
    const token = sessionStorage.getItem(TOKEN);
    if (token) sent.set("Authorization", `Bearer ${token}`);
    if (body !== undefined) sent.set("Content-Type", "application/json");
    const response = await fetch(path, {
      method, body, headers: sent, cache: "no-store", credentials: "omit", redirect: "error",
      signal: AbortSignal.timeout(wait),
    });
    if (response.ok) return response;
    const problem = await response.json().catch(() => null);
    throw new Refused(response.status, problem?.message ?? `the driver answers ${response.status}`);
  }

  // -- changing only what has changed

  const keyOf = (node) =>
    node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.id || "" : "";

  function morph(old, next) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== next.data) old.data = next.data;
      return;
    }
    if (old.hasAttribute("data-keep")) return;
    for (const { name, value } of next.attributes) {
      // Whether details are open is the reader's choice.
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !next.hasAttribute(name)) old.removeAttribute(name);
    }
    morphChildren(old, next);
  }

  function morphChildren(old, next) {
    const keyed = new Map();
    for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
    let at = old.firstChild;
    for (const made of [...next.childNodes]) {
      const key = keyOf(made);
      const alike = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
      if (!alike || alike.nodeName !== made.nodeName) {
        old.insertBefore(document.importNode(made, true), at);
        continue;
      }
      if (alike === at) at = at.nextSibling;
      else old.insertBefore(alike, at);
      morph(alike, made);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  function show(place, html) {
    const made = new DOMParser().parseFromString(policy.createHTML(html), "text/html").body;
    const active = document.activeElement;
    morphChildren(place, made);
    // A row that moved has lost the focus.
    if (active && active !== document.activeElement && active.isConnected) {
      active.focus({ preventScroll: true });
    }
  }

  // -- the driver is lost and found

  const clock = (date) => `${date.toISOString().slice(11, 19)} UTC`;
  let heard = new Date();

  function answers() {
    heard = new Date();
    byId("lost").hidden = true;
    document.body.classList.remove("lost");
  }

  function fails(error) {
    const text = error instanceof Refused
      ? `the driver cannot show this since ${clock(heard)}: ${error.message}`
      : `the driver does not answer since ${clock(heard)}`;
    const place = byId("lost");
    // Told once: a screen reader would repeat it every few seconds.
    if (place.textContent !== text) place.textContent = text;
    place.hidden = false;
    document.body.classList.add("lost");
  }

  // -- what is live

  let wanted = new URLSearchParams(location.search);
  let turn = 0;
  let timer = 0;
  let slowAt = 0;

  async function refresh() {
    clearTimeout(timer);
    const mine = ++turn;
    if (document.body.classList.contains("signed-out") && !sessionStorage.getItem(TOKEN)) return;
    try {
      const text = await (await ask(`/page/live?${wanted}`)).text();
      if (mine !== turn) return;
      answers();
      signedIn();
      show(byId("live"), text);
      if (Date.now() - slowAt > SLOW_MS && !document.hidden) refreshSlow();
    } catch (error) {
      if (mine !== turn) return;
      if (error.status === 401 || error.status === 429) return askForToken(error.message);
      fails(error);
    }
    timer = setTimeout(refresh, document.hidden ? HIDDEN_MS : LIVE_MS);
  }

  function refreshSlow() {
    slowAt = Date.now();
    for (const place of document.querySelectorAll("[data-slow]")) {
      if (place.getAttribute("aria-busy") === "true") continue;
      place.setAttribute("aria-busy", "true");
      fetchSlow(place);
    }
  }

  // What asks clusters says that it still does; then it is looked at again soon.
  async function fetchSlow(place) {
    try {
      do {
        await new Promise((done) => setTimeout(done, place.querySelector("[data-again]") ? AGAIN_MS : 0));
        show(place, await (await ask(place.dataset.slow)).text());
      } while (place.isConnected && place.querySelector("[data-again]"));
    } catch (error) {
      slowAt = 0; // The page says that the driver is lost; afterwards it is asked again.
    } finally {
      place.removeAttribute("aria-busy");
    }
  }

  function look(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value) wanted.set(name, value);
      else wanted.delete(name);
    }
    const text = String(wanted);
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
    refresh();
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

  // -- who looks

  function signedIn() {
    byId("sign-in").hidden = true;
    document.body.classList.remove("signed-out");
    byId("sign-out").hidden = !sessionStorage.getItem(TOKEN);
  }

  function askForToken(message) {
    sessionStorage.removeItem(TOKEN);
    clearTimeout(timer);
    byId("live").replaceChildren(); // What was seen with the token goes with it.
    document.body.classList.add("signed-out");
    byId("sign-out").hidden = true;
    byId("sign-in").hidden = false;
    byId("sign-in-problem").textContent = message;
    byId("token").focus();
  }

  byId("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, byId("token").value.trim());
    byId("token").value = "";
    byId("sign-in-problem").textContent = "";
    slowAt = 0;
    refresh();
  });
  byId("sign-out").addEventListener("click", () => { if (byId("act").open) byId("act").close(); askForToken(""); });

  // -- filters and pages of lanes

  let typing = 0;
  const filters = () => {
    const form = byId("filter");
    return { search: form.search.value.trim(), flow: form.flow.value, state: form.state.value, page: "" };
  };
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "filter") return;
    event.preventDefault();
    look(filters());
  });
  document.addEventListener("input", (event) => {
    if (event.target.form?.id !== "filter") return;
    clearTimeout(typing);
    typing = setTimeout(() => look(filters()), TYPING_MS);
  });

  // -- why

  byId("why-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = new URLSearchParams({ topic: byId("why-topic").value.trim() });
    if (byId("why-group").value.trim()) asked.set("group", byId("why-group").value.trim());
    const place = byId("why-answer");
    place.textContent = "Both clusters are being asked.";
    try {
      const text = await (await ask(`/page/why?${asked}`, { wait: CLUSTERS_MS })).text();
      place.replaceChildren();
      show(place, text);
    } catch (error) {
      place.textContent = error.message;
    }
  });

  // -- acting

  const DECIDING = ["topics", "partitions", "for_s", "why"];
  const RECOVERING = { recovers: true, fields: ["topics", "skip_active"] };
  const VERBS = {
    pause: { fields: DECIDING },
    resume: { fields: DECIDING },
    throttle: { fields: [...DECIDING, "bytes_per_s"] },
    stop: { fields: ["for_s", "why"] },
    start: { fields: ["for_s", "why"] },
    failover: { ...RECOVERING, about: "Leaves the source now, without it. What was not copied yet is left behind." },
    promote: { ...RECOVERING, about: "Copies what is left, compares, then leaves the source." },
    reverse: { recovers: true, fields: ["topics", "resync", "may_delete"], about: "Carries what changed back to the old source." },
    restore: { recovers: true, fields: ["topics", "may_delete"], about: "Deletes the topics on the old source and copies everything back." },
    withdraw: { fields: [], method: "DELETE", path: (on) => `/v1/decisions/${on.id}` , tag: (on) => `/v1/decisions?flow=${encodeURIComponent(on.flow)}` },
    silence: { fields: ["for_s", "why"], atOnce: true, path: (on) => `/v1/alarms/${on.id}/silence`, preset: { for_s: "3600" } },
    lift: { fields: [], atOnce: true, method: "DELETE", path: (on) => `/v1/silences/${on.id}` },
  };
  const pathOf = (verb, on) =>
    VERBS[verb].path ? VERBS[verb].path(on) : `/v1/flows/${encodeURIComponent(on.flow)}:${verb}`;
  const tagPathOf = (verb, on) =>
    VERBS[verb].tag ? VERBS[verb].tag(on) : `/v1/flows/${encodeURIComponent(on.flow)}`;

  let acting = null; // The verb and what it is about, while the dialog is open.
  let planned = null; // The request that was previewed: exactly this one is sent.

  function open(verb, on, opener) {
    const form = byId("act-form");
    form.reset();
    acting = { verb, on, opener };
    const { fields, about = "", preset = {}, atOnce } = VERBS[verb];
    byId("act-title").textContent = `${verb} ${on.flow}${on.topic ? ` ${on.topic}${on.partition ? `-${on.partition}` : ""}` : ""}${on.id ? ` ${on.id}` : ""}`;
    byId("act-about").textContent = about;
    for (const field of form.querySelectorAll("[data-field]")) field.hidden = !fields.includes(field.dataset.field);
    if (on.topic) form.topics.value = on.topic;
    if (on.topic) form.partitions.value = on.partition;
    for (const [name, value] of Object.entries(preset)) form[name].value = value;
    byId("act-preview").hidden = Boolean(atOnce);
    byId("act-problem").textContent = "";
    forgetPlan();
    byId("act").showModal();
  }

  function forgetPlan() {
    planned = null;
    byId("act-plan").replaceChildren();
    byId("act-confirm").hidden = true;
    byId("act-typed").value = "";
    mayDo();
  }

  function mayDo() {
    if (!acting) return;
    const { recovers, atOnce } = VERBS[acting.verb];
    const typed = !recovers || byId("act-typed").value === acting.on.flow;
    byId("act-do").disabled = !(atOnce || (planned && typed));
  }

  function asked() {
    const { verb, on } = acting;
    const form = byId("act-form");
    const fields = VERBS[verb].fields;
    const body = {};
    const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
    if (fields.includes("topics") && lines(form.topics.value).length) body.topics = lines(form.topics.value);
    if (fields.includes("partitions") && form.partitions.value.trim()) {
      body.partitions = form.partitions.value.split(",").map((part) => Number(part.trim()));
    }
    for (const name of ["bytes_per_s", "for_s"]) {
      if (fields.includes(name) && form[name].value.trim()) body[name] = Number(form[name].value);
    }
    for (const name of ["skip_active", "resync", "may_delete"]) {
      if (fields.includes(name) && form[name].checked) body[name] = true;
    }
    if (fields.includes("why") && form.why.value.trim()) body.why = form.why.value.trim();
    const method = VERBS[verb].method ?? "POST";
    return { method, path: pathOf(verb, on), body: method === "POST" ? JSON.stringify(body) : undefined };
  }

  // The version is read first, and sent with the preview; the preview's own tag is sent with what is
  // then done: where something was decided in between, or topics or groups have come or gone, the
  // driver refuses, and nothing is done that was not shown.
  async function preview() {
    const { verb, on } = acting;
    forgetPlan();
    const plan = asked();
    const tag = (await ask(tagPathOf(verb, on))).headers.get("ETag");
    plan.headers = { "If-Match": tag };
    const answer = await ask(`${plan.path}?dry_run=true`, { ...plan, wait: CLUSTERS_MS });
    const found = await answer.json();
    if (!acting || acting.on !== on) return;
    byId("act-plan").replaceChildren(...drawn(found));
    if (found.refusal || (found.changes && !found.decision)) return;
    planned = { ...plan, headers: { "If-Match": answer.headers.get("ETag") } };
    byId("act-confirm").hidden = !VERBS[verb].recovers;
    mayDo();
  }

  async function act() {
    const { verb, on } = acting;
    const plan = VERBS[verb].atOnce ? asked() : planned;
    if (!plan) return;
    byId("act-do").disabled = true;
    const answer = await ask(plan.path, { ...plan, wait: CLUSTERS_MS });
    byId("act").close();
    byId("told").textContent = answer.status === 202
      ? `${verb} of ${on.flow} has begun; its steps are under Decisions.`
      : `${verb} of ${on.flow} is done.`;
    slowAt = 0;
    refresh();
  }

  function guarded(work) {
    byId("act-problem").textContent = "";
    byId("act-form").setAttribute("aria-busy", "true");
    work()
      .catch((error) => {
        forgetPlan();
        byId("act-problem").textContent = error instanceof Refused ? error.message : `the driver does not answer: ${error.message}`;
      })
      .finally(() => byId("act-form").removeAttribute("aria-busy"));
  }

  // Plans are drawn from text alone: a topic's name is never markup.
  function element(name, ...children) {
    const made = document.createElement(name);
    made.append(...children);
    return made;
  }

  function drawn(found) {
    if (found.refusal) return [element("p", `It would be refused: ${found.refusal}`)];
    if (!found.changes) return [element("h3", "What it would do"), value(found.plan)];
    const rows = found.changes.slice(0, ROWS_MAX).map((each) =>
      element("li", `${each.topic}${each.partition === null ? "" : `-${each.partition}`}: ${each.before} → ${each.after}`));
    const more = found.changes.length - rows.length;
    if (more > 0) rows.push(element("li", `and ${more} more`));
    const notes = found.remarks.map((text) => element("p", text));
    const head = !found.decision ? "It is so already." : rows.length ? "What would change" : "It would be written, and changes no lane that there is.";
    return [element("h3", head), element("ul", ...rows), ...notes];
  }

  function value(found) {
    if (Array.isArray(found)) {
      if (!found.length) return element("span", "none");
      const items = found.slice(0, ROWS_MAX).map((each) => element("li", value(each)));
      if (found.length > ROWS_MAX) items.push(element("li", `and ${found.length - ROWS_MAX} more`));
      return element("ul", ...items);
    }
    if (found && typeof found === "object") {
      const parts = Object.entries(found).flatMap(([name, each]) =>
        [element("dt", name.replaceAll("_", " ")), element("dd", value(each))]);
      return parts.length ? element("dl", ...parts) : element("span", "none");
    }
    return element("span", found === null ? "none" : String(found));
  }

  byId("act-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!VERBS[acting.verb].atOnce) guarded(preview);
  });
  byId("act-form").addEventListener("input", (event) => {
    if (event.target.id === "act-typed") mayDo();
    else forgetPlan();
  });
  byId("act-do").addEventListener("click", () => guarded(act));
  byId("act-close").addEventListener("click", () => byId("act").close());
  byId("act").addEventListener("close", () => {
    const opener = acting?.opener;
    acting = planned = null;
    if (opener?.isConnected) opener.focus({ preventScroll: true });
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-verb]");
    if (button) open(button.dataset.verb, { ...button.dataset }, button);
    const link = event.target.closest("a[data-page]");
    if (link) {
      event.preventDefault();
      look({ page: link.dataset.page });
      byId("lanes").scrollIntoView();
    }
  });

  refresh();
})();
