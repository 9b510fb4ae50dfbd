// The server under test: where it is, how to name and drop databases on it,
// and how to wait for something without waiting for ever. Every test file uses
// these, so that the client under test is the only thing that differs.
import { randomBytes } from 'node:crypto'

if (!process.env.DIVAN_URL) {
  throw new Error('DIVAN_URL is not set; it must hold the address of a running server, e.g. http://admin:secret@127.0.0.1:5984')
}

const parsed = new URL(process.env.DIVAN_URL)

/** Base address without credentials and without a slash at the end. */
export const origin = parsed.origin

/** Admin credentials of the server under test. */
export const username = decodeURIComponent(parsed.username)
export const password = decodeURIComponent(parsed.password)

/** Base address with credentials, as clients take it in one string. */
export const url = `${parsed.protocol}//${parsed.username}:${parsed.password}@${parsed.host}`

/** Value of the Authorization header for the admin. */
export const authorization = 'Basic ' + Buffer.from(`${username}:${password}`).toString('base64')

/** A database name that no other test and no other run uses. */
export function databaseName (prefix) {
  return `${prefix}-${randomBytes(6).toString('hex')}`
}

/** One plain request, with no client between the test and the server. */
export async function request (method, path, body) {
  const response = await fetch(origin + path, {
    method,
    headers: { authorization, accept: 'application/json', 'content-type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(60_000)
  })
  const text = await response.text()
  let json
  try { json = JSON.parse(text) } catch { json = undefined }
  return { status: response.status, headers: response.headers, text, json }
}

/** Deletes a database when the test ends; it may be gone by then. */
export function dropAfter (t, name) {
  t.after(async () => {
    const { status, text } = await request('DELETE', '/' + encodeURIComponent(name))
    if (status !== 200 && status !== 202 && status !== 404) throw new Error(`DELETE ${name}: ${status} ${text}`)
  })
  return name
}

/** Creates a database that lives as long as the test. */
export async function createDatabase (t, prefix, query = '') {
  const name = databaseName(prefix)
  const { status, text } = await request('PUT', '/' + encodeURIComponent(name) + query)
  if (status !== 201 && status !== 202) throw new Error(`PUT ${name}: ${status} ${text}`)
  return dropAfter(t, name)
}

/** The promise, or an error that says what did not happen in time. */
export async function within (milliseconds, what, promise) {
  let timer
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing within ${milliseconds} ms`)), milliseconds)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Everything a readable stream gives, as one buffer. */
export async function collect (stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(Buffer.from(chunk))
  return Buffer.concat(chunks)
}
