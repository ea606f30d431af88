// Elements in one line.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A live region is read out again whenever it is written to: only what is new.
export function rewrite(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const number = (value, digits = 2) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

// A link that saves what a data URL holds, once it is there.
export function offer(link, url, name) {
  if (url === null) {
    link.removeAttribute("href");
    link.setAttribute("aria-disabled", "true");
    return;
  }
  link.href = url;
  link.download = name;
  link.removeAttribute("aria-disabled");
}

// What is wrong in a form, in the browser's words; null if nothing is.
export function wrongIn(form) {
  const control = [...form.elements].find((one) => !one.checkValidity());
  if (!control) return null;
  const name = control.ariaLabel ?? control.labels[0].firstChild.textContent;
  return `${name.trim()}: ${control.validationMessage}`;
}
