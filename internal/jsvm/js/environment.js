// What a script finds around it, and how its functions are made.
//
// The files of this directory are put one after the other into one function, which
// runs once in each engine before any script does:
//
//     environment.js   built-ins kept safe, errors, functions, modules, globals
//     render.js        shows, lists, updates, rewrites
//     dispatch.js      the entrance for the host
//
// Scripts may overwrite every built-in of their engine. So what is used below after
// scripts have run is taken out of reach first: constants of this function, which no
// script can see, and methods bound to their own call. The paths that run once per
// document use syntax alone (literals, indexes, +).

const parse = JSON.parse;
const stringify = JSON.stringify;
const evaluate = eval; // called under this name it compiles in the global scope
const freeze = Object.freeze;
const keysOf = Object.keys;
const hasOwn = Object.hasOwn;
const prototypeOf = Object.getPrototypeOf;
const defineProperty = Object.defineProperty;
const descriptorOf = Object.getOwnPropertyDescriptor;
const isArray = Array.isArray;
const apply = Reflect.apply;
const toText = String;
const toNumber = Number;
const MapOfModules = Map;

const method = (f) => Function.prototype.call.bind(f);
const cut = method(String.prototype.slice);
const split = method(String.prototype.split);
const trim = method(String.prototype.trim);
const lowerCase = method(String.prototype.toLowerCase);
const join = method(Array.prototype.join);
const mapGet = method(Map.prototype.get);
const mapSet = method(Map.prototype.set);
const mapHas = method(Map.prototype.has);
const mapDelete = method(Map.prototype.delete);

const plainFunction = Function.prototype;
const engineError = InternalError.prototype;
const syntaxError = SyntaxError.prototype;

// The one function of the host; see list in render.js.
const host = globalThis.__host;
delete globalThis.__host;

// Nothing here can wait for another thread.
delete globalThis.Atomics;
delete globalThis.SharedArrayBuffer;

// ---- errors ----------------------------------------------------------------

const longestReason = 8192;

// A Refusal is an error with a name for the client, made here.
function Refusal(name, reason) {
  this.name = name;
  this.message = reason;
}

// passOn throws an exception again that is no script's to handle: the engine is out
// of memory. What holds it may be another document's, so the host decides.
function passOn(e) {
  if (typeof e === "object" && e !== null && prototypeOf(e) === engineError) {
    const message = descriptorOf(e, "message");
    if (message !== undefined && message.value === "out of memory") throw e;
  }
}

function textOf(value) {
  let text = typeof value === "string" ? value : stringify(value);
  if (typeof text !== "string") text = toText(value);
  return text.length > longestReason ? cut(text, 0, longestReason) + "…" : text;
}

// describe gives [name, reason] of whatever was thrown, in the forms that the
// scripts of CouchDB throw.
function describe(e) {
  try {
    if (e === null || (typeof e !== "object" && typeof e !== "function")) return ["error", textOf(toText(e))];
    if (isArray(e)) {
      if (e[0] === "error" || e[0] === "fatal") return [textOf(e[1]), textOf(e[2])];
      return ["error", textOf(e)];
    }
    if (e.error && e.reason) return [textOf(e.error), textOf(e.reason)];
    if (e.forbidden !== undefined) return ["forbidden", textOf(e.forbidden)];
    if (e.unauthorized !== undefined) return ["unauthorized", textOf(e.unauthorized)];
    if (e.not_found !== undefined) return ["not_found", textOf(e.not_found)];
    if (typeof e.name === "string" && e.message !== undefined) return [textOf(e.name), textOf(e.message)];
    return ["error", textOf(e)];
  } catch (nested) {
    passOn(nested);
    return ["error", "an exception that cannot be described"];
  }
}

// ---- functions -------------------------------------------------------------

const longestQuote = 1000;

function quote(source) {
  return " (" + (source.length > longestQuote ? cut(source, 0, longestQuote) + "…" : source) + ")";
}

function isSyntaxError(e) {
  return typeof e === "object" && e !== null && prototypeOf(e) === syntaxError;
}

// placeOf gives the place of a syntax error in a text that prefix characters were
// put before.
function placeOf(e, prefix) {
  const line = e.lineNumber;
  const column = e.columnNumber;
  return { line, column: line === 1 ? column - prefix : column };
}

function further(a, b) {
  return a.line > b.line || (a.line === b.line && a.column > b.column);
}

// functionOf compiles the text of a function.
//
// The text is read as an expression first, by the comma before it: so an anonymous
// function needs no parentheses, a named one is a value too, and semicolons and
// comments may follow. What is no expression is read as a program whose last value
// is the function, as CouchDB does.
function functionOf(source) {
  let value;
  let failed;
  try {
    value = evaluate("0," + source);
  } catch (e) {
    passOn(e);
    failed = e;
  }
  if (typeof value !== "function" && (failed === undefined || isSyntaxError(failed))) {
    try {
      const last = evaluate(source);
      if (typeof last === "function" || failed !== undefined) {
        value = last;
        failed = undefined;
      }
    } catch (e) {
      passOn(e);
      // The reading that came further knows better what is wrong.
      if (failed !== undefined && (!isSyntaxError(e) || further(placeOf(e, 0), placeOf(failed, 2)))) {
        throw new Refusal("compilation_error", explain(e, 0) + quote(source));
      }
    }
  }
  if (failed !== undefined) throw new Refusal("compilation_error", explain(failed, 2) + quote(source));
  if (typeof value !== "function") {
    throw new Refusal("compilation_error", "Expression does not eval to a function." + quote(source));
  }
  if (prototypeOf(value) !== plainFunction) {
    throw new Refusal("compilation_error", "An async function or a generator cannot be called here." + quote(source));
  }
  return value;
}

function explain(e, prefix) {
  const [name, reason] = describe(e);
  if (!isSyntaxError(e)) return name + ": " + reason;
  const place = placeOf(e, prefix);
  return name + ": " + reason + " at line " + place.line + ", column " + place.column;
}

// functions are those compiled so far; the host numbers them in the same order. One
// that does not compile says so whenever it is called.
const functions = [];

function define(source) {
  let f;
  try {
    f = functionOf(source);
  } catch (e) {
    passOn(e);
    f = () => {
      throw e;
    };
  }
  functions[functions.length] = f;
}

// ---- modules ---------------------------------------------------------------

let designText = "{}";
let designForRequire;
let designForThis;

// design is what `this` is in the functions that CouchDB calls with the design
// document. Scripts can change it, so require has a copy of its own.
function design() {
  return (designForThis ??= parse(designText));
}

const modules = new MapOfModules();

// resolve gives the id of a module: names from the top of the design document, with
// "." and ".." counted from the folder of the module that asks.
function resolve(name, folder) {
  const names = split(toText(name), "/");
  const path = [];
  if (names[0] === "." || names[0] === "..") {
    for (let i = 0; i < folder.length; i++) path[i] = folder[i];
  }
  for (let i = 0; i < names.length; i++) {
    if (names[i] === "." || names[i] === "") continue;
    if (names[i] !== "..") {
      path[path.length] = names[i];
    } else if (path.length === 0) {
      throw new Refusal("invalid_require_path", "require('" + name + "') leads out of the design document");
    } else {
      path.length--;
    }
  }
  return path;
}

function moduleSource(name, path) {
  let at = (designForRequire ??= parse(designText));
  for (let i = 0; i < path.length; i++) {
    if (typeof at !== "object" || at === null || !hasOwn(at, path[i])) {
      throw new Refusal("invalid_require_path", "require('" + name + "'): Object has no property \"" + path[i] + '"');
    }
    at = at[path[i]];
  }
  if (typeof at !== "string") {
    throw new Refusal("invalid_require_path", "require('" + name + "'): Must require a JavaScript string, not: " + typeof at);
  }
  return at;
}

// requireFrom gives the require function of a module in a folder. A module that is
// still loading gives the exports it has by then, so cycles end as they do in Node.
function requireFrom(folder) {
  return function require(name) {
    const path = resolve(name, folder);
    const id = join(path, "/");
    if (mapHas(modules, id)) return mapGet(modules, id).exports;
    const source = moduleSource(name, path);
    const module = { id, exports: {} };
    mapSet(modules, id, module);
    try {
      path.length--;
      const body = evaluate("(function (module, exports, require) { " + source + "\n})");
      apply(body, module.exports, [module, module.exports, requireFrom(path)]);
    } catch (e) {
      mapDelete(modules, id);
      passOn(e);
      // An error of a module within this one is told as it is.
      if (typeof e === "object" && e !== null && prototypeOf(e) === Refusal.prototype) throw e;
      const [errorName, reason] = describe(e);
      throw new Refusal("compilation_error", "Module require('" + name + "') raised error " + errorName + ": " + reason);
    }
    return module.exports;
  };
}

// ---- globals ---------------------------------------------------------------

// emitted takes key and value of each row in turn: two levels of arrays less than
// pairs in lists cost a third of the time of a small document. null while no map
// function runs.
let emitted = null;

function emit(key, value) {
  if (emitted === null) return;
  const n = emitted.length;
  emitted[n] = key;
  emitted[n + 1] = value;
}

function sum(values) {
  let total = 0;
  for (const i in values) total += values[i];
  return total;
}

const mostLogLines = 100;
const longestLogLine = 4096;
let logLines = [];

function log(message) {
  if (logLines.length >= mostLogLines) return;
  let text = typeof message === "string" ? message : stringify(message);
  if (typeof text !== "string") text = toText(message);
  logLines[logLines.length] = text.length > longestLogLine ? cut(text, 0, longestLogLine) + "…" : text;
}

function provide(name, value, writable) {
  defineProperty(globalThis, name, { value, writable, configurable: writable, enumerable: false });
}

// One view that overwrites emit would silence its neighbours.
provide("emit", emit, false);
provide("sum", sum, true);
provide("log", log, true);
provide("toJSON", stringify, true);
provide("isArray", function isArray(value) {
  return Array.isArray(value);
}, true);
provide("require", requireFrom([]), true);
