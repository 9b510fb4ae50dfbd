// Shows, lists, updates and rewrites: functions that answer HTTP requests. They
// behave as those of CouchDB do.

// ---- media types -----------------------------------------------------------

const typesOfKey = new MapOfModules();
const keyOfType = new MapOfModules();

// registerType gives a name to media types; who registers last wins.
function registerType(key, ...types) {
  mapSet(typesOfKey, key, types);
  for (let i = 0; i < types.length; i++) mapSet(keyOfType, types[i], key);
}

registerType("all", "*/*");
registerType("text", "text/plain; charset=utf-8", "txt");
registerType("html", "text/html; charset=utf-8");
registerType("xhtml", "application/xhtml+xml", "xhtml");
registerType("xml", "application/xml", "text/xml", "application/x-xml");
registerType("js", "text/javascript", "application/javascript", "application/x-javascript");
registerType("css", "text/css");
registerType("ics", "text/calendar");
registerType("csv", "text/csv");
registerType("rss", "application/rss+xml");
registerType("atom", "application/atom+xml");
registerType("yaml", "application/x-yaml", "text/yaml");
registerType("multipart_form", "multipart/form-data");
registerType("url_encoded_form", "application/x-www-form-urlencoded");
registerType("json", "application/json", "text/x-json");

// mediaRange takes "text/html;level=1;q=0.5" apart.
function mediaRange(text) {
  const parts = split(text, ";");
  let full = trim(parts[0]);
  if (full === "*") full = "*/*";
  const names = split(full, "/");
  const params = { __proto__: null };
  for (let i = 1; i < parts.length; i++) {
    const pair = split(parts[i], "=");
    if (pair.length === 2) params[trim(pair[0])] = trim(pair[1]);
  }
  let q = params.q === undefined ? 1 : toNumber(params.q);
  if (!(q >= 0 && q <= 1)) q = 1;
  return { type: names[0], subtype: names[1], params, q };
}

// fit says how well a type matches the ranges of an Accept header: the most specific
// range that matches decides the quality.
function fit(type, ranges) {
  const target = mediaRange(type);
  let best = -1;
  let q = 0;
  for (let i = 0; i < ranges.length; i++) {
    const range = ranges[i];
    const sameType = range.type === target.type;
    const sameSubtype = range.subtype === target.subtype;
    if (!sameType && range.type !== "*" && target.type !== "*") continue;
    if (!sameSubtype && range.subtype !== "*" && target.subtype !== "*") continue;
    let fitness = (sameType ? 100 : 0) + (sameSubtype ? 10 : 0);
    for (const name in target.params) {
      if (name !== "q" && range.params[name] === target.params[name]) fitness++;
    }
    if (fitness > best) {
      best = fitness;
      q = range.q;
    }
  }
  return [best, q];
}

// bestType gives the type that fits best, the last of equals; "" if none does.
function bestType(types, accept) {
  const texts = split(accept, ",");
  const ranges = [];
  for (let i = 0; i < texts.length; i++) ranges[i] = mediaRange(texts[i]);
  let best = "";
  let bestFit = [-1, 0];
  for (let i = 0; i < types.length; i++) {
    const found = fit(types[i], ranges);
    if (found[0] > bestFit[0] || (found[0] === bestFit[0] && found[1] >= bestFit[1])) {
      best = types[i];
      bestFit = found;
    }
  }
  return bestFit[1] > 0 ? best : "";
}

// ---- the state of one answer -----------------------------------------------

let provided = []; // [key, function] of each provides()
let chosenType = null; // the content type that provides chose
let pieces = []; // what was sent and not passed on
let piecesLength = 0;
let startResponse = {};
let inList = false;

// rowsAhead are rows that the host gave and getRow has not given yet.
let rowsAhead = [];
let nextRow = 0;
let lastRows = false;
let started = false;

function reset(isList) {
  provided = [];
  chosenType = null;
  pieces = [];
  piecesLength = 0;
  startResponse = {};
  inList = isList;
  rowsAhead = [];
  nextRow = 0;
  lastRows = false;
  started = false;
}

const enoughToSend = 32 * 1024;

provide("registerType", registerType, true);
provide("provides", function provides(key, f) {
  provided[provided.length] = [key, f];
}, true);
provide("start", function start(response) {
  startResponse = response || {};
}, true);
provide("send", function send(piece) {
  const text = toText(piece.toString());
  pieces[pieces.length] = text;
  piecesLength += text.length;
  if (inList && piecesLength >= enoughToSend) passPieces(false);
}, true);
provide("getRow", function getRow() {
  if (!inList) throw new Refusal("render_error", "getRow is for list functions");
  if (nextRow >= rowsAhead.length) {
    if (lastRows) return null;
    const answer = passPieces(true);
    lastRows = answer[0] === "e";
    rowsAhead = parse(cut(answer, 1));
    nextRow = 0;
    if (rowsAhead.length === 0) return null;
  }
  const row = rowsAhead[nextRow];
  rowsAhead[nextRow] = undefined;
  nextRow++;
  return row;
}, true);

// passPieces gives the host what was sent, and asks it for rows if need be. The head
// of the response goes with the first piece: until then start() may change it.
function passPieces(wantRows, isLast) {
  const packet = { pieces };
  if (!started && (pieces.length > 0 || isLast)) {
    started = true;
    packet.start = withType(startResponse);
  }
  pieces = [];
  piecesLength = 0;
  return host(wantRows ? "rows" : "piece", stringify(packet));
}

// withType fills in the headers and the content type that provides chose.
function withType(response) {
  response.headers = response.headers || {};
  if (chosenType) response.headers["Content-Type"] = response.headers["Content-Type"] || chosenType;
  return response;
}

// runProvided calls the function that the client's format or Accept header asks for.
function runProvided(req) {
  const headers = req.headers || {};
  const accept = headers.Accept || headers.accept;
  let key;
  if (req.query && req.query.format) {
    key = req.query.format;
    chosenType = mapHas(typesOfKey, key) ? mapGet(typesOfKey, key)[0] : null;
  } else if (accept) {
    // The first of equals wins, so it is tried last.
    const types = [];
    for (let i = provided.length - 1; i >= 0; i--) {
      const more = mapGet(typesOfKey, provided[i][0]) || [];
      for (let j = 0; j < more.length; j++) types[types.length] = more[j];
    }
    chosenType = bestType(types, toText(accept));
    key = mapGet(keyOfType, chosenType);
  } else {
    key = provided[0][0];
    chosenType = mapHas(typesOfKey, key) ? mapGet(typesOfKey, key)[0] : null;
  }
  // With an Accept header CouchDB has turned the order around: of two functions for
  // one type the last one answers.
  const backwards = !(req.query && req.query.format) && accept;
  for (let n = 0; n < provided.length; n++) {
    const i = backwards ? provided.length - 1 - n : n;
    if (provided[i][0] === key) return apply(provided[i][1], design(), []);
  }
  const known = [];
  for (let i = 0; i < provided.length; i++) {
    known[i] = join(mapGet(typesOfKey, provided[i][0]) || [provided[i][0]], ", ");
  }
  throw new Refusal(
    "not_acceptable",
    "Content-Type " + (accept || key) + " not supported, try one of: " + join(known, ", "),
  );
}

// ---- errors ----------------------------------------------------------------

// renderError tells what a function threw: as it is if it is in one of the forms made
// for that, else as render_error with the place.
function renderError(e) {
  passOn(e);
  if (typeof e === "object" && e !== null) {
    const meant =
      prototypeOf(e) === Refusal.prototype ||
      (e.error && e.reason) ||
      e[0] === "error" ||
      e[0] === "fatal" ||
      e.forbidden !== undefined ||
      e.unauthorized !== undefined ||
      e.not_found !== undefined;
    if (meant) throw e;
  }
  const stack = typeof e === "object" && e !== null && e.stack;
  const [name, reason] = describe(e);
  const text = "function raised error: " + name + ": " + reason + (stack ? " \nstacktrace: " + textOf(stack) : "");
  log(text);
  throw new Refusal("render_error", text);
}

function wrapped(response) {
  return typeof response === "string" ? { body: response } : response;
}

function mustRespond(response, kind) {
  if (typeof response !== "object" || response === null || isArray(response)) {
    throw new Refusal("render_error", "undefined response from " + kind + " function");
  }
  response.headers = response.headers || {};
  return response;
}

// ---- the four kinds ---------------------------------------------------------

function show(f, doc, req) {
  reset(false);
  try {
    let response = wrapped(apply(f, design(), [doc, req]) || {});
    if (pieces.length > 0) {
      if (startResponse.code !== undefined && response.code === undefined) response.code = startResponse.code;
      response.headers = response.headers || {};
      for (const name in startResponse.headers) response.headers[name] = startResponse.headers[name];
      response.body = join(pieces, "") + (response.body || "");
      pieces = [];
    }
    if (provided.length > 0) {
      const more = wrapped(runProvided(req) || {});
      response.body = (response.body || "") + join(pieces, "") + (more.body || "");
      response = withType(response);
    }
    return mustRespond(response, "show");
  } catch (e) {
    if (typeof e === "object" && e !== null && typeof e.redirect === "string") {
      return { code: 302, headers: { Location: e.redirect }, body: "" };
    }
    // A show of a document that is not there mostly fails for that reason.
    if (doc === null && req.path && req.path.length > 5) {
      passOn(e);
      throw new Refusal("not_found", "document not found");
    }
    renderError(e);
  }
}

function update(f, doc, req) {
  reset(false);
  if (req.method === "GET") {
    throw new Refusal("method_not_allowed", "Update functions do not allow GET");
  }
  try {
    const result = apply(f, design(), [doc, req]);
    const written = result[0];
    const response = mustRespond(wrapped(result[1]), "update");
    const isDoc = typeof written === "object" && written !== null && !isArray(written);
    return [isDoc ? written : null, response];
  } catch (e) {
    renderError(e);
  }
}

function rewrite(f, req) {
  reset(false);
  try {
    const result = apply(f, design(), [req]);
    if (!result) return null;
    return typeof result === "string" ? { path: result, method: req.method } : result;
  } catch (e) {
    renderError(e);
  }
}

function list(f, head, req) {
  reset(true);
  try {
    let tail = apply(f, design(), [head, req]);
    if (provided.length > 0) tail = runProvided(req);
    if (tail !== undefined && tail !== null) pieces[pieces.length] = toText(tail);
    passPieces(false, true);
    return 1;
  } catch (e) {
    renderError(e);
  } finally {
    reset(false);
  }
}
