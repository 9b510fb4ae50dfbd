// couchbackup, the hosted service's backup tool, as a library and as a command:
// 10,000 documents out to a file and back into an empty database.
//
// couchbackup logs in with a cookie session when its address holds a name.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, open, readFile, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import couchbackup from '@cloudant/couchbackup'
import { createDatabase, databaseName, request, url, within } from './target.mjs'

const documents = 10_000
const toolDirectory = dirname(createRequire(import.meta.url).resolve('@cloudant/couchbackup/package.json'))

/** A directory for backup files, gone when the test ends. */
async function directory (t) {
  const path = await mkdtemp(join(tmpdir(), 'divan-backup-'))
  t.after(() => rm(path, { recursive: true, force: true }))
  return path
}

async function bulk (db, body) {
  const { status, json, text } = await request('POST', `/${db}/_bulk_docs`, body)
  assert.equal(status, 201, text)
  for (const result of json) assert.equal(result.error, undefined, JSON.stringify(result))
  return json
}

const idOf = (i) => `backup-${String(i).padStart(5, '0')}`

/**
 * 10,000 live documents; every twentieth was edited, every fiftieth has a
 * conflict; 200 more were deleted; one is a design document.
 */
async function fill (db) {
  const revs = []
  for (let start = 0; start < documents + 199; start += 1000) {
    const docs = []
    for (let i = start; i < Math.min(start + 1000, documents + 199); i++) {
      docs.push({ _id: idOf(i), number: i, text: `ü${i}\u2028`, nested: { a: [1, null, { b: 1e300 }] } })
    }
    for (const { rev } of await bulk(db, { docs })) revs.push(rev)
  }
  await bulk(db, { docs: [{ _id: '_design/d', views: { v: { map: 'function (doc) { emit(1) }' } } }] })
  const edited = []
  const forked = []
  for (let i = 0; i < documents - 1; i++) {
    if (i % 20 === 0) edited.push({ _id: idOf(i), _rev: revs[i], number: i, edited: true })
    if (i % 50 === 1) {
      for (const leaf of ['aaaa', 'bbbb']) {
        forked.push({ _id: idOf(i), _rev: `2-${leaf}`, _revisions: { start: 2, ids: [leaf, revs[i].slice(2)] }, leaf })
      }
    }
  }
  await bulk(db, { docs: edited })
  await bulk(db, { docs: forked, new_edits: false })
  const deleted = []
  for (let i = documents - 1; i < documents + 199; i++) deleted.push({ _id: idOf(i), _rev: revs[i], _deleted: true })
  await bulk(db, { docs: deleted })
}

async function get (path) {
  const { status, json, text } = await request('GET', path)
  assert.equal(status, 200, text)
  return json
}

/** All rows of _all_docs with the documents. */
const rowsOf = async (db, options = '') => (await get(`/${db}/_all_docs?include_docs=true${options}`)).rows

/** Leaves of all documents as the changes feed tells them, in id order. */
async function leavesOf (db) {
  const { results } = await get(`/${db}/_changes?style=all_docs`)
  return results
    .map((row) => [row.id, row.deleted === true, row.changes.map((c) => c.rev).sort()])
    .sort((a, b) => (a[0] < b[0] ? -1 : 1))
}

/** Every leaf with its history, as strings that can be compared. */
async function historiesOf (db, leaves) {
  const all = []
  for (let start = 0; start < leaves.length; start += 1000) {
    const docs = leaves.slice(start, start + 1000).flatMap(([id, , revs]) => revs.map((rev) => ({ id, rev })))
    const { status, json, text } = await request('POST', `/${db}/_bulk_get?revs=true`, { docs })
    assert.equal(status, 200, text)
    for (const result of json.results) for (const { ok } of result.docs) all.push(JSON.stringify(ok))
  }
  return all
}

function backup (db, file, options) {
  return new Promise((resolve, reject) => {
    couchbackup.backup(`${url}/${db}`, createWriteStream(file), options, (error, result) => error ? reject(error) : resolve(result))
  })
}

function restore (file, db, options) {
  return new Promise((resolve, reject) => {
    couchbackup.restore(createReadStream(file), `${url}/${db}`, options, (error, result) => error ? reject(error) : resolve(result))
  })
}

/** Runs a command of the tool; resolves when it ends well. */
async function command (name, args, input) {
  const stdin = input ? await open(input) : undefined
  try {
    const child = spawn(process.execPath, [join(toolDirectory, 'bin', `${name}.bin.js`), ...args], {
      stdio: [stdin ? stdin.fd : 'ignore', 'ignore', 'pipe']
    })
    let messages = ''
    child.stderr.on('data', (chunk) => { messages += chunk })
    try {
      const [code] = await within(180_000, `end of ${name}`, once(child, 'close'))
      assert.equal(code, 0, messages)
    } finally {
      child.kill()
    }
  } finally {
    await stdin?.close()
  }
}

describe('couchbackup', { timeout: 400_000 }, () => {
  let source
  let leaves
  let rows

  before(async () => {
    source = databaseName('backup-source')
    assert.equal((await request('PUT', '/' + source)).status, 201)
    await fill(source)
    leaves = await leavesOf(source)
    rows = await rowsOf(source, '&conflicts=true')
    assert.equal(rows.length, documents)
  })

  after(async () => {
    assert.equal((await request('DELETE', '/' + source)).status, 200)
  })

  test('full backup and restore keep every document, conflict, deletion and history', async (t) => {
    const file = join(await directory(t), 'full.backup')
    const target = await createDatabase(t, 'backup-full')
    const saved = await within(180_000, 'backup', backup(source, file, { mode: 'full', log: file + '.log' }))
    assert.ok(saved.total >= documents)
    const header = JSON.parse((await readFile(file, 'utf8')).split('\n', 1)[0])
    assert.equal(header.mode, 'full')
    await within(180_000, 'restore', restore(file, target, {}))

    assert.deepEqual(await leavesOf(target), leaves)
    assert.deepEqual(await rowsOf(target, '&conflicts=true'), rows)
    const [expected, restored] = [await historiesOf(source, leaves), await historiesOf(target, leaves)]
    assert.equal(restored.length, leaves.reduce((n, [, , revs]) => n + revs.length, 0))
    assert.deepEqual(restored, expected)
    assert.ok(leaves.filter(([, , revs]) => revs.length === 2).length >= 199)
  })

  test('shallow backup and restore by the commands keep every winning revision', async (t) => {
    const file = join(await directory(t), 'shallow.backup')
    const target = await createDatabase(t, 'backup-shallow')
    await command('couchbackup', ['--url', url, '--db', source, '--mode', 'shallow', '--output', file, '--quiet'])
    await command('couchrestore', ['--url', url, '--db', target, '--quiet'], file)
    assert.deepEqual(await rowsOf(target), await rowsOf(source))
    const info = await get('/' + target)
    assert.equal(info.doc_count, documents)
    assert.equal(info.doc_del_count, 0)
  })

  test('full backup and restore by the commands', async (t) => {
    const file = join(await directory(t), 'command.backup')
    const target = await createDatabase(t, 'backup-command')
    await command('couchbackup', ['--url', url, '--db', source, '--mode', 'full', '--parallelism', '2', '--buffer-size', '1000', '--log', file + '.log', '--output', file, '--quiet'])
    await command('couchrestore', ['--url', url, '--db', target, '--quiet'], file)
    assert.deepEqual(await leavesOf(target), leaves)
  })

  test('backup with attachments', async (t) => {
    const file = join(await directory(t), 'attachments.backup')
    const from = await createDatabase(t, 'backup-att')
    const target = await createDatabase(t, 'backup-att-restored')
    const docs = Array.from({ length: 100 }, (_, i) => ({
      _id: idOf(i),
      _attachments: {
        'a.bin': { content_type: 'application/octet-stream', data: Buffer.alloc(500 + i, i).toString('base64') },
        'dir/t.txt': { content_type: 'text/plain', data: Buffer.from(`text ${i} `.repeat(30)).toString('base64') }
      }
    }))
    await bulk(from, { docs })
    await within(60_000, 'backup', backup(from, file, { attachments: true }))
    await within(60_000, 'restore', restore(file, target, { attachments: true }))
    assert.deepEqual(await rowsOf(target, '&attachments=true'), await rowsOf(from, '&attachments=true'))
  })

  test('restore into a database that is not empty is refused by the tool', async (t) => {
    const file = join(await directory(t), 'small.backup')
    const from = await createDatabase(t, 'backup-small')
    await bulk(from, { docs: [{ _id: 'a' }] })
    await backup(from, file, { mode: 'shallow' })
    await assert.rejects(restore(file, from, {}), { name: 'DatabaseNotEmpty' })
    await assert.rejects(backup('no-such-database', file, {}), { name: 'DatabaseNotFound' })
  })
})
