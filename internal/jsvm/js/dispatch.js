// The entrance for the host: one call with one text of many items, one text back.
//
// The answer is [results] or [results, lines of the log]. A result is an array when
// the function came to its end, and {"e": [name, reason]} when it threw. Results of
// map functions may be packed; see mapPure.

function failure(e) {
  passOn(e);
  return { e: describe(e) };
}

// textOfResult turns one result into text; running out of ways to do that is an
// exception of the script, whose toJSON or getters did it.
function textOfResult(result) {
  try {
    const text = stringify(result);
    if (typeof text === "string") return text;
    return '{"e":["TypeError","the result has no form in JSON"]}';
  } catch (e) {
    return stringify(failure(e));
  }
}

function freezeAll(value) {
  freeze(value);
  for (const name in value) {
    const member = value[name];
    if (typeof member === "object" && member !== null) freezeAll(member);
  }
}

// pairs makes rows of what was emitted from one place to another.
function pairs(list, from, to) {
  const rows = [];
  for (let i = from; i < to; i += 2) rows[rows.length] = [list[i], list[i + 1]];
  return rows;
}

// map calls every function with every document, document by document.
//
// When no code of this engine can change an object (pure), documents need no
// protection from one function to the next, and what was emitted cannot change until
// the end of the batch: mapPure. Otherwise documents are frozen, as CouchDB freezes
// them, and rows become text as soon as the function ends.
function map(called, docs, pure) {
  if (pure) return mapPure(called, docs);
  let text = "";
  for (let i = 0; i < docs.length; i++) {
    const doc = docs[i];
    freezeAll(doc);
    for (let k = 0; k < called.length; k++) {
      const f = called[k];
      const mine = [];
      let result;
      emitted = mine;
      try {
        f(doc);
        result = pairs(mine, 0, mine.length);
      } catch (e) {
        emitted = null;
        result = failure(e);
      }
      emitted = null;
      text += (text === "" ? "" : ",") + textOfResult(result);
    }
  }
  return "[" + text + "]";
}

// mapPure turns all of a batch into text at once: {"n": for each result the number of
// its rows, or what was thrown; "f": keys and values in turn}.
function mapPure(called, docs) {
  const all = [];
  const counts = [];
  for (let i = 0; i < docs.length; i++) {
    const doc = docs[i];
    for (let k = 0; k < called.length; k++) {
      const f = called[k];
      const before = all.length;
      let result;
      emitted = all;
      try {
        f(doc);
        result = (all.length - before) / 2;
      } catch (e) {
        emitted = null;
        result = failure(e);
        all.length = before;
      }
      counts[counts.length] = result;
    }
  }
  emitted = null;
  try {
    return '{"n":' + stringify(counts) + ',"f":' + stringify(all) + "}";
  } catch (e) {
    passOn(e);
  }
  // Something has no form in JSON, a BigInt perhaps: only its function is to suffer.
  let text = "";
  let at = 0;
  for (let i = 0; i < counts.length; i++) {
    let result = counts[i];
    if (typeof result === "number") {
      result = pairs(all, at, at + 2 * result);
      at += 2 * counts[i];
    }
    text += (i === 0 ? "" : ",") + textOfResult(result);
  }
  return "[" + text + "]";
}

// each calls one function per item. What it gives back becomes text at once, since a
// later call may change it.
function each(items, callOne) {
  let text = "";
  for (let i = 0; i < items.length; i++) {
    let result;
    try {
      result = [callOne(items[i])];
    } catch (e) {
      result = failure(e);
    }
    text += (i === 0 ? "" : ",") + textOfResult(result);
  }
  return "[" + text + "]";
}

// validation tells an exception of a validation function as CouchDB does: what is no
// error of the engine and no refusal is unknown_error with its message.
function validation(e) {
  passOn(e);
  if (typeof e === "string") return ["unknown_error", textOf(e)];
  if (typeof e !== "object" || e === null || isArray(e)) return describe(e);
  const names = keysOf(e);
  const told = describe(e);
  if (names.length === 1 && told[0] === "error") return ["unknown_error", textOf(e[names[0]])];
  return told;
}

const operations = {
  __proto__: null,
  map,
  check: (_, sources) => each(sources, (source) => (functionOf(source), 1)),
  reduce: ([f], calls) => each(calls, (call) => f(call[0], call[1], call[2])),
  filter: ([f], docs, _, req) => each(docs, (doc) => (apply(f, design(), [doc, req]) ? 1 : 0)),
  validate: ([f], calls) =>
    each(calls, (call) => {
      try {
        apply(f, design(), call);
      } catch (e) {
        const [name, reason] = validation(e);
        throw new Refusal(name, reason);
      }
      return 1;
    }),
  show: ([f], calls) => each(calls, (call) => show(f, call[0], call[1])),
  update: ([f], calls) => each(calls, (call) => update(f, call[0], call[1])),
  rewrite: ([f], calls) => each(calls, (call) => rewrite(f, call[0])),
  list: ([f], calls) => each(calls, (call) => list(f, call[0], call[1])),
};

// run is one request: the numbers of the functions it calls, what the operation
// needs once, and the items.
function run(op, numbers, pure, extra, body) {
  const ids = parse(numbers);
  const called = [];
  for (let i = 0; i < ids.length; i++) called[i] = functions[ids[i]];
  emitted = null;
  logLines = [];
  const results = operations[op](called, parse(body), pure, extra === "" ? undefined : parse(extra));
  return logLines.length === 0 ? "[" + results + "]" : "[" + results + "," + textOfResult(logLines) + "]";
}

return function (what, ...args) {
  switch (what) {
    case "design":
      designText = args[0];
      return "";
    case "define":
      define(args[0]);
      return "";
    default:
      return run(what, args[0], args[1], args[2], args[3]);
  }
};
