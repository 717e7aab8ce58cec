// Everything here is a convenience: each page works without it.
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const html = document.documentElement;
html.classList.add('js');

/* Copies an id or a command. */
addEventListener('click', async event => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  event.preventDefault();
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    const field = document.createElement('textarea');
    field.value = button.dataset.copy;
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }
  const name = button.textContent;
  button.textContent = 'copied';
  setTimeout(() => { button.textContent = name; }, 1200);
});

/* The command of a form follows its fields. */
addEventListener('input', event => {
  const form = event.target.form;
  const command = form?.dataset.command;
  if (!command) return;
  one('.cmd code', form).textContent = command.replace(/\{(\w+)\}/g, (_, name) => {
    const value = form.elements[name]?.value ?? '';
    return /^[\w.:/*%-]+$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`;
  });
});

/* Relative times stay current. */
const units = [['d', 864e5], ['h', 36e5], ['min', 6e4], ['s', 1e3]];
function relative(moment) {
  const past = Date.now() + skew - moment;
  const [name, size] = units.find(([, size]) => Math.abs(past) >= size) ?? units[3];
  const text = `${Math.floor(Math.abs(past) / size)} ${name}`;
  return past < 0 ? `in ${text}` : `${text} ago`;
}
// The clock of this machine may be wrong: the server's counts.
let skew = 0;
function times() {
  for (const time of all('time')) {
    let text = relative(Date.parse(time.dateTime));
    // In sentences such as "until 5 h from now".
    if ('from' in time.dataset) text = text.replace(/^in (.*)/, '$1 from now');
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(times, 5000);

/* Keys. */
let went = 0;
let row = -1;
addEventListener('keydown', event => {
  const isField = event.target.matches('input:not([type=range],[type=checkbox]),select,textarea');
  if (event.ctrlKey || event.metaKey || event.altKey || isField) return;
  const find = one('input[type=search]');
  if (event.key === '?') one('#keys').showModal();
  else if (event.key === '/' && find) { event.preventDefault(); find.focus(); find.select(); }
  else if (event.key === 'g') went = Date.now();
  else if (Date.now() - went < 1500) { went = 0; one(`.nav [data-key="${CSS.escape(event.key)}"]`)?.click(); }
  else if (event.key === 'j' || event.key === 'k') {
    const links = all('main tbody th a');
    row = Math.max(0, Math.min(links.length - 1, row + (event.key === 'j' ? 1 : -1)));
    links[row]?.focus();
  }
});

/* Changes a part of the page, and keeps what a person has opened, chosen or written. */
function morph(from, to) {
  if (from.isEqualNode(to)) return;
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.id !== to.id) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType === Node.TEXT_NODE) { from.data = to.data; return; }
  if (from.nodeType !== Node.ELEMENT_NODE) return;
  // A form in use, an editor, and a log or a table that somebody scrolled, keep what they have.
  if (from.matches('form[popover]:popover-open, [data-still]')) return;
  const kept = from.matches('details') ? ['open'] : from.matches('input,textarea,select') ? ['value', 'checked'] : [];
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !kept.includes(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value && !kept.includes(name)) from.setAttribute(name, value);
  if (from.matches('textarea,select')) return;
  const known = new Map(all(':scope > [id], :scope > [data-row]', from).map(child => [child.id || child.dataset.row, child]));
  let before = from.firstChild;
  for (const child of [...to.childNodes]) {
    const key = child.id || child.dataset?.row;
    const same = key ? known.get(key) : before;
    if (same && key) {
      if (same === before) before = before.nextSibling;
      else from.insertBefore(same, before);
      morph(same, child);
    } else if (same && !(same.id || same.dataset?.row)) {
      before = same.nextSibling;
      morph(same, child);
    } else from.insertBefore(child, before);
  }
  while (before) { const next = before.nextSibling; before.remove(); before = next; }
}

/* The stream of changes. */
const stream = one('#stream');
let heard = Date.now();
let wait = 500;
function say(text, isLive) {
  if (stream.textContent !== text) stream.textContent = text;
  stream.classList.toggle('on', isLive);
}
function replace(part, made) {
  morph(part, made);
  if (part.id === 'title') document.title = part.textContent;
  dispatchEvent(new CustomEvent('changed', { detail: part }));
}
function apply(changes) {
  for (const { id, html } of changes) {
    const part = document.getElementById(id);
    if (!part) continue;
    const made = document.createElement('div');
    made.id = id;
    made.innerHTML = html;
    replace(part, made);
  }
  times();
}
let source;
function listen() {
  source?.close();
  const mine = source = new EventSource(`/live-page?at=${encodeURIComponent(location.pathname + location.search)}`);
  const hear = () => { heard = Date.now(); say('live', true); };
  mine.addEventListener('hello', event => {
    const { release, now } = JSON.parse(event.data);
    skew = Date.parse(now) - Date.now();
    wait = 500;
    hear();
    // The server was upgraded: this page is of another release. While servers of two releases
    // answer, pages that are loaded at once would not come to rest.
    if (release !== html.dataset.release) setTimeout(() => location.reload(), performance.now() < 5000 ? 5000 : 0);
  });
  mine.addEventListener('change', event => { hear(); if (mine === source) apply(JSON.parse(event.data)); });
  mine.addEventListener('beat', hear);
  // The page stays as it is from now on.
  mine.addEventListener('done', () => { mine.close(); stream.remove(); });
  mine.addEventListener('end', () => { mine.close(); location.reload(); });
  mine.onerror = () => {
    mine.close();
    say('not live: connecting again', false);
    setTimeout(() => { if (mine === source) listen(); }, wait * (0.5 + Math.random()));
    wait = Math.min(wait * 2, 30000);
  };
}
addEventListener('pagehide', () => source?.close());

/* A moment that was chosen in a chart: its address, and what the page knows of it. */
let asked;
addEventListener('moment', ({ detail: { at } }) => {
  const url = new URL(location);
  if (at === null) url.searchParams.delete('at');
  else url.searchParams.set('at', at);
  history.replaceState(null, '', url);
  clearTimeout(asked);
  // Keys come fast: the last one counts.
  asked = setTimeout(async () => {
    const answer = await fetch(url, { headers: { accept: 'text/html' } }).catch(() => null);
    if (!answer?.ok || String(url) !== location.href) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const made of all('main > [id]', page)) {
      const part = document.getElementById(made.id);
      if (part) replace(part, made);
    }
    times();
    listen();
  }, 200);
});
addEventListener('pageshow', event => { if (event.persisted) location.reload(); });
if (stream) {
  listen();
  setInterval(() => {
    const silent = Date.now() - heard;
    if (silent > 40000) say(`not live for ${relative(heard - skew).replace(' ago', '')}`, false);
  }, 5000);
}
