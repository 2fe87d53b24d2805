// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Keeps the open page up to date: the server sends the content of <main> whenever it changes. Elements that stay are
// changed in place, so that focus, scroll position and open details are kept. The server has escaped all text.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");

// patch makes the children of have those of want. Elements with an ID are found by it, others by their place.
function patch(have, want) {
  let next = have.firstChild;
  for (const child of [...want.childNodes]) {
    const known = child.id ? [...have.children].find((e) => e.id === child.id) : undefined;
    if (known && known !== next) {
      have.insertBefore(known, next);
      next = known;
    }
    if (!next || next.nodeName !== child.nodeName || (next.id || "") !== (child.id || "")) {
      have.insertBefore(child, next);
      continue;
    }
    if (next.isEqualNode(child)) {
      // The usual case, and far quicker than what follows.
    } else if (next.nodeType === Node.ELEMENT_NODE) {
      attributes(next, child);
      patch(next, child);
    } else {
      next.nodeValue = child.nodeValue;
    }
    next = next.nextSibling;
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

// attributes gives have the attributes of want. Whether details are open is up to the user.
function attributes(have, want) {
  for (const { name } of [...have.attributes]) {
    if (!want.hasAttribute(name) && name !== "open") have.removeAttribute(name);
  }
  for (const { name, value } of [...want.attributes]) {
    if (have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
}

let source;

// follow listens while the page can be seen: browsers open few connections to a host, and each open page needs one.
function follow() {
  if (document.hidden) {
    source?.close();
    source = undefined;
  } else if (!source) {
    source = new EventSource("/live?page=" + encodeURIComponent(decodeURIComponent(location.pathname)));
    source.onmessage = (event) => {
      connection.textContent = "";
      patch(main, new DOMParser().parseFromString(JSON.parse(event.data), "text/html").body);
    };
    source.onerror = () => {
      connection.textContent = source?.readyState === EventSource.CLOSED
        ? "Not live: too many pages are open, or liqoctl began anew. Close some and reload, or open the address that it " +
          "printed last."
        : "Not live: liqoctl does not answer. Trying again.";
    };
  }
}

document.addEventListener("visibilitychange", follow);
follow();
