/* Names for the editor of rules, while somebody writes within quotes. */
const field = one('textarea[aria-autocomplete]');
if (field) {
  const list = one('#offered');
  const names = all('[data-names] code').map(code =>
    [code.textContent, code.closest('dd').previousElementSibling.textContent]);
  let start = 0;
  let marked = 0;
  const close = () => {
    list.hidden = true;
    field.removeAttribute('aria-activedescendant');
  };
  const mark = number => {
    const options = [...list.children];
    marked = (number + options.length) % options.length;
    options.forEach((option, index) => option.setAttribute('aria-selected', index === marked));
    field.setAttribute('aria-activedescendant', options[marked].id);
    options[marked].scrollIntoView({ block: 'nearest' });
  };
  const take = () => {
    field.setRangeText(list.children[marked].dataset.name, start, field.selectionStart, 'end');
    close();
  };
  const offer = isAsked => {
    const line = field.value.slice(0, field.selectionStart).split('\n').pop();
    const parts = line.split('"');
    const written = parts.pop();
    if (parts.length % 2 === 0 || (!written && !isAsked)) return close();
    start = field.selectionStart - written.length;
    const low = written.toLowerCase();
    const rank = ([name]) => +!name.toLowerCase().startsWith(low);
    const fit = names.filter(([name]) => name.toLowerCase().includes(low) && name !== written)
      .sort((one, other) => rank(one) - rank(other)).slice(0, 12);
    one('#offered-said').textContent = fit.length ? `${fit.length} names fit` : '';
    if (!fit.length) return close();
    list.replaceChildren(...fit.map(([name, kind], index) => {
      const option = document.createElement('li');
      const of = document.createElement('i');
      Object.assign(option, { id: `offered-${index}`, role: 'option', textContent: `${name} ` });
      option.dataset.name = name;
      of.textContent = kind;
      option.append(of);
      return option;
    }));
    list.hidden = false;
    mark(0);
  };
  field.addEventListener('input', () => offer(false));
  field.addEventListener('blur', close);
  field.addEventListener('keydown', event => {
    if (event.key === ' ' && event.ctrlKey) offer(true);
    else if (list.hidden) return;
    else if (event.key === 'ArrowDown') mark(marked + 1);
    else if (event.key === 'ArrowUp') mark(marked - 1);
    else if (event.key === 'Enter') take();
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
  });
  list.addEventListener('mousedown', event => {
    const option = event.target.closest('li');
    event.preventDefault();
    if (!option) return;
    marked = [...list.children].indexOf(option);
    take();
  });
}
