// PouchDB 9 replicating with the server: live two-way sync with attachments,
// conflicts and deletions, resumed checkpoints, filtered replication.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createHash } from 'node:crypto'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import { createDatabase, databaseName, url, within } from './target.mjs'

PouchDB.plugin(memoryAdapter)

/** A database in this process, gone when the test ends. */
function localDatabase (t) {
  const db = new PouchDB(databaseName('local'), { adapter: 'memory' })
  t.after(() => db.destroy())
  return db
}

/** The remote database, and the list of requests that PouchDB makes to it. */
function remoteDatabase (name) {
  const requests = []
  const db = new PouchDB(`${url}/${name}`, {
    skip_setup: true,
    fetch: (address, options) => {
      const target = new URL(address)
      requests.push({ method: options?.method ?? 'GET', path: target.pathname, query: target.searchParams })
      return PouchDB.fetch(address, options)
    }
  })
  return { db, requests }
}

/** Bytes that are the same for the same name, and not compressible. */
function bytesOf (name, length) {
  const chunks = []
  for (let i = 0, have = 0; have < length; i++, have += 32) {
    chunks.push(createHash('sha256').update(`${name}/${i}`).digest())
  }
  return Buffer.concat(chunks).subarray(0, length)
}

/** One document in three has a binary attachment, one in three a text, all inline. */
function makeDocument (id, i, side) {
  const doc = { _id: id, number: i, side, nested: { list: [i, null, 'ü'], big: 1e21 } }
  if (i % 3 === 0) {
    doc._attachments = { 'data.bin': { content_type: 'application/octet-stream', data: bytesOf(id + side, 200 + i).toString('base64') } }
  } else if (i % 3 === 1) {
    doc._attachments = { 'note.txt': { content_type: 'text/plain', data: Buffer.from(`${side} note of ${id} `.repeat(20)).toString('base64') } }
  }
  return doc
}

const idOf = (i) => `doc-${String(i).padStart(4, '0')}`

/** All leaf revisions of all documents: the state that two replicas must share. */
async function leavesOf (db) {
  const { results } = await db.changes({ since: 0, style: 'all_docs' })
  const leaves = {}
  for (const row of results) {
    leaves[row.id] = { deleted: row.deleted === true, revs: row.changes.map((c) => c.rev).sort() }
  }
  return leaves
}

const fingerprint = (leaves) => JSON.stringify(Object.keys(leaves).sort().map((id) => [id, leaves[id]]))

/**
 * Resolves when both sides hold the same leaves and `ready` holds too. Looks
 * again each time that the replication reports something, never on a clock.
 */
function converged (sync, local, remote, ready) {
  return new Promise((resolve, reject) => {
    let looking = false
    let again = false
    const look = async () => {
      if (looking) { again = true; return }
      looking = true
      try {
        do {
          again = false
          const mine = await leavesOf(local)
          const theirs = await leavesOf(remote)
          if (ready(mine) && fingerprint(mine) === fingerprint(theirs)) {
            sync.removeListener('paused', look)
            sync.removeListener('change', look)
            resolve(mine)
            return
          }
        } while (again)
      } catch (error) {
        reject(error)
      } finally {
        looking = false
      }
    }
    sync.on('paused', look)
    sync.on('change', look)
    sync.on('error', reject)
    sync.on('denied', (denied) => reject(new Error('denied: ' + JSON.stringify(denied))))
    look()
  })
}

/**
 * Winner, conflicts, body and attachments of every document, comparable across
 * replicas. Not revpos and digest: PouchDB renumbers the one when it stores an
 * attachment with its bytes, and the other is of the stored form.
 */
async function contentOf (db) {
  const { rows } = await db.allDocs({ include_docs: true, conflicts: true, attachments: true })
  return rows.map(({ doc }) => {
    const { _attachments: attachments = {}, _conflicts: conflicts = [], ...rest } = doc
    const files = {}
    for (const [name, file] of Object.entries(attachments)) {
      files[name] = { type: file.content_type, data: file.data }
    }
    return { doc: rest, conflicts: [...conflicts].sort(), files }
  })
}

/** Every leaf of the named documents, with its history and its attachments. */
async function leafBodiesOf (db, leaves, ids) {
  const docs = ids.flatMap((id) => leaves[id].revs.map((rev) => ({ id, rev })))
  const { results } = await db.bulkGet({ docs, revs: true, attachments: true })
  return results.flatMap((result) => result.docs.map(({ ok, error }) => {
    assert.equal(error, undefined)
    const { _attachments: attachments = {}, ...rest } = ok
    const files = Object.entries(attachments).map(([name, file]) => [name, file.content_type, file.data])
    return JSON.stringify([ok._id, ok._rev, Object.entries(rest).sort(), files.sort()])
  })).sort()
}

describe('PouchDB replication', { concurrency: true, timeout: 300_000 }, () => {
  test('syncs 1,000 documents live in both directions, with attachments and conflicts', async (t) => {
    const local = localDatabase(t)
    const { db: remote, requests } = remoteDatabase(await createDatabase(t, 'pouch-sync'))

    // 400 documents on this side, 400 on that side, 200 on both and different
    const here = []
    const there = []
    for (let i = 0; i < 1000; i++) {
      if (i < 600) here.push(makeDocument(idOf(i), i, 'local'))
      if (i >= 400) there.push(makeDocument(idOf(i), i, 'remote'))
    }
    for (const [db, docs] of [[local, here], [remote, there]]) {
      for (const result of await db.bulkDocs(docs)) assert.equal(result.ok, true, JSON.stringify(result))
    }

    const sync = PouchDB.sync(local, remote, { live: true, retry: false, batch_size: 100 })
    const ended = new Promise((resolve, reject) => sync.on('complete', resolve).on('error', reject))
    ended.catch(() => {}) // an early failure is reported by converged()
    try {
      const leaves = await within(120_000, 'first convergence', converged(sync, local, remote, (l) => Object.keys(l).length === 1000))
      for (let i = 0; i < 1000; i++) {
        assert.equal(leaves[idOf(i)].revs.length, i >= 400 && i < 600 ? 2 : 1, idOf(i))
      }

      // while it runs: edits and deletions on both sides, and fresh conflicts
      // (the same parent edited on both sides in the same moment)
      const race = Array.from({ length: 20 }, (_, i) => idOf(i))
      const edit = async (db, side) => {
        const { rows } = await db.allDocs({ keys: race, include_docs: true })
        return rows.map(({ doc }) => ({ ...doc, edited: side }))
      }
      const [mine, theirs] = await Promise.all([edit(local, 'local'), edit(remote, 'remote')])
      // foreign revisions of one parent: neither side can refuse the other's edit
      const forked = (docs, side) => docs.map((doc) => {
        const [generation, parent] = doc._rev.split('-')
        const hash = createHash('md5').update(doc._id + side).digest('hex')
        const start = Number(generation) + 1
        return { ...doc, _rev: `${start}-${hash}`, _revisions: { start, ids: [hash, parent] } }
      })
      await Promise.all([
        local.bulkDocs(forked(mine, 'local'), { new_edits: false }),
        remote.bulkDocs(forked(theirs, 'remote'), { new_edits: false })
      ])
      const drop = async (db, ids) => {
        const { rows } = await db.allDocs({ keys: ids })
        const results = await db.bulkDocs(rows.map((r) => ({ _id: r.id, _rev: r.value.rev, _deleted: true })))
        for (const result of results) assert.equal(result.ok, true, JSON.stringify(result))
      }
      await drop(local, Array.from({ length: 25 }, (_, i) => idOf(700 + i)))
      await drop(remote, Array.from({ length: 25 }, (_, i) => idOf(100 + i)))
      await drop(remote, Array.from({ length: 10 }, (_, i) => idOf(400 + i)))
      await local.putAttachment(idOf(800), 'late.bin', (await local.get(idOf(800)))._rev, bytesOf('late', 5000), 'image/png')
      await remote.putAttachment(idOf(200), 'late.txt', (await remote.get(idOf(200)))._rev, Buffer.from('late '.repeat(999)), 'text/plain')
      await local.put({ _id: 'last-local' })
      await remote.put({ _id: 'last-remote' })

      const final = await within(120_000, 'second convergence', converged(sync, local, remote, (l) =>
        l['last-local'] && l['last-remote'] && race.every((id) => l[id].revs.length === 2) &&
        l[idOf(724)].deleted && l[idOf(124)].deleted && l[idOf(800)].revs[0].startsWith('2-') && l[idOf(200)].revs[0].startsWith('2-')))
      assert.equal(Object.keys(final).length, 1002)
      sync.cancel()
      await within(30_000, 'end of the cancelled sync', ended)

      // same winners, same conflicts, same bodies, same attachments
      const [ours, others] = await Promise.all([contentOf(local), contentOf(remote)])
      assert.equal(ours.length, 1002 - 50)
      assert.equal(others.length, ours.length)
      for (let i = 0; i < ours.length; i++) assert.deepEqual(others[i], ours[i])
      const conflicted = ours.filter((d) => d.conflicts.length > 0)
      assert.equal(conflicted.length, 190 + 20)
      assert.ok(Buffer.from(ours.find((d) => d.doc._id === idOf(800)).files['late.bin'].data, 'base64').equals(bytesOf('late', 5000)))

      // every leaf, also the losing and the deleted ones, with its history
      const ids = Object.keys(final)
      const [ourLeaves, theirLeaves] = await Promise.all([leafBodiesOf(local, final, ids), leafBodiesOf(remote, final, ids)])
      assert.equal(ourLeaves.length, ids.reduce((n, id) => n + final[id].revs.length, 0))
      assert.deepEqual(theirLeaves, ourLeaves)

      // a sync that runs out writes the checkpoints; the next one starts from
      // them, finds nothing, and moves no document
      await within(60_000, 'catching up', PouchDB.sync(local, remote))
      requests.length = 0
      const resumed = await within(60_000, 'resumed sync', PouchDB.sync(local, remote))
      for (const side of [resumed.push, resumed.pull]) {
        assert.equal(side.ok, true)
        assert.deepEqual([side.docs_read, side.docs_written, side.doc_write_failures], [0, 0, 0])
      }
      const feeds = requests.filter((r) => r.path.endsWith('/_changes'))
      assert.ok(feeds.length > 0)
      for (const feed of feeds) assert.notEqual(feed.query.get('since') ?? '0', '0', 'the checkpoint was not used')
      assert.deepEqual(requests.filter((r) => /_(bulk_docs|bulk_get|revs_diff)$/.test(r.path)), [])
    } finally {
      sync.cancel()
    }
  })

  test('replicates only the named documents', async (t) => {
    const local = localDatabase(t)
    const { db: remote } = remoteDatabase(await createDatabase(t, 'pouch-ids'))
    await remote.bulkDocs(Array.from({ length: 50 }, (_, i) => makeDocument(idOf(i), i, 'remote')))
    const wanted = [idOf(3), idOf(7), idOf(33)]
    const result = await local.replicate.from(remote, { doc_ids: wanted })
    assert.equal(result.docs_written, 3)
    assert.deepEqual((await local.allDocs()).rows.map((r) => r.id), wanted)
    assert.equal((await local.replicate.from(remote, { doc_ids: wanted })).docs_read, 0)
  })

  test('replicates only what a selector matches', async (t) => {
    const local = localDatabase(t)
    const { db: remote } = remoteDatabase(await createDatabase(t, 'pouch-selector'))
    await remote.bulkDocs(Array.from({ length: 50 }, (_, i) => makeDocument(idOf(i), i, 'remote')))
    const selector = { number: { $gte: 10, $lt: 20 } }
    const result = await local.replicate.from(remote, { selector })
    assert.equal(result.docs_written, 10)
    assert.deepEqual((await local.allDocs()).rows.map((r) => r.id), Array.from({ length: 10 }, (_, i) => idOf(10 + i)))
    await remote.put({ _id: 'later', number: 15 })
    assert.equal((await local.replicate.from(remote, { selector })).docs_written, 1)
  })

  /** A remote database whose design document filters by number, and 30 documents. */
  async function filteredRemote (t) {
    const { db: remote } = remoteDatabase(await createDatabase(t, 'pouch-filter'))
    await remote.put({
      _id: '_design/f',
      filters: { below: 'function (doc, req) { return doc.number < Number(req.query.bound) }' },
      views: { tens: { map: 'function (doc) { if (doc.number % 10 === 0) emit(doc.number) }' } }
    })
    await remote.bulkDocs(Array.from({ length: 30 }, (_, i) => makeDocument(idOf(i), i, 'remote')))
    return remote
  }

  const documentIds = async (db) => (await db.allDocs()).rows.map((r) => r.id).filter((id) => !id.startsWith('_design/'))

  /** Resolves when a live replication has brought a document. */
  const brought = (replication, id) => within(60_000, `arrival of ${id}`, new Promise((resolve, reject) => {
    replication.on('error', reject)
    replication.on('denied', reject)
    replication.on('change', (info) => { if (info.docs.some((d) => d._id === id)) resolve() })
  }))

  test('pulls live through a filter function with parameters', async (t) => {
    const local = localDatabase(t)
    const remote = await filteredRemote(t)
    const pull = local.replicate.from(remote, { live: true, retry: false, filter: 'f/below', query_params: { bound: 5 } })
    t.after(() => pull.cancel())
    await brought(pull, idOf(4))
    const later = brought(pull, 'later')
    await remote.bulkDocs([{ _id: 'not', number: 7 }, { _id: 'later', number: 1 }])
    await later
    assert.deepEqual(await documentIds(local), [0, 1, 2, 3, 4].map(idOf).concat('later'))
  })

  test('pulls live through a view', async (t) => {
    const local = localDatabase(t)
    const remote = await filteredRemote(t)
    const pull = local.replicate.from(remote, { live: true, retry: false, filter: '_view', view: 'f/tens' })
    t.after(() => pull.cancel())
    await brought(pull, idOf(20))
    const later = brought(pull, 'later')
    await remote.bulkDocs([{ _id: 'not', number: 31 }, { _id: 'later', number: 40 }])
    await later
    assert.deepEqual(await documentIds(local), [0, 10, 20].map(idOf).concat('later'))
  })

  test('what a validation function refuses is told as denied, and the rest arrives', async (t) => {
    const local = localDatabase(t)
    const { db: remote } = remoteDatabase(await createDatabase(t, 'pouch-denied'))
    await remote.put({ _id: '_design/v', validate_doc_update: 'function (doc) { if (doc.bad) throw { forbidden: "bad" } }' })
    await local.bulkDocs([{ _id: 'a' }, { _id: 'b', bad: true }, { _id: 'c' }])
    const denied = []
    const push = local.replicate.to(remote)
    push.on('denied', (e) => denied.push(e))
    const result = await push
    assert.equal(result.docs_written, 2)
    assert.equal(result.doc_write_failures, 1)
    assert.deepEqual(denied.map((e) => [e.id, e.name, e.reason]), [['b', 'forbidden', 'bad']])
    assert.deepEqual(await documentIds(remote), ['a', 'c'])
  })

  test('resumes a pull after an interruption without reading the start again', async (t) => {
    const local = localDatabase(t)
    const { db: remote, requests } = remoteDatabase(await createDatabase(t, 'pouch-resume'))
    await remote.bulkDocs(Array.from({ length: 300 }, (_, i) => ({ _id: idOf(i) })))
    // stop after the first batch has been stored and its checkpoint written
    const first = local.replicate.from(remote, { batch_size: 50, batches_limit: 1 })
    await within(60_000, 'first batch', new Promise((resolve, reject) => {
      first.on('error', reject)
      first.on('checkpoint', (event) => { if (event.checkpoint) first.cancel() })
      first.on('complete', resolve)
    }))
    const have = (await local.info()).doc_count
    assert.ok(have >= 50 && have < 300, `${have} documents after the first batch`)
    requests.length = 0
    const second = await within(60_000, 'rest of the pull', local.replicate.from(remote))
    assert.equal(second.ok, true)
    assert.equal((await local.info()).doc_count, 300)
    const feed = requests.find((r) => r.path.endsWith('/_changes'))
    assert.notEqual(feed.query.get('since') ?? '0', '0', 'the checkpoint was not used')
    assert.ok(second.docs_read <= 300 - 50)
  })

  test('pushes deletions and a second replica converges', async (t) => {
    const one = localDatabase(t)
    const two = localDatabase(t)
    const { db: remote } = remoteDatabase(await createDatabase(t, 'pouch-relay'))
    const written = await one.bulkDocs(Array.from({ length: 20 }, (_, i) => makeDocument(idOf(i), i, 'one')))
    await one.replicate.to(remote)
    await two.replicate.from(remote)
    assert.deepEqual(await contentOf(two), await contentOf(one))
    await one.remove(idOf(4), written[4].rev)
    await one.replicate.to(remote)
    await two.replicate.from(remote)
    await assert.rejects(two.get(idOf(4)), { status: 404, reason: 'deleted' })
    assert.equal(fingerprint(await leavesOf(two)), fingerprint(await leavesOf(remote)))
    assert.equal(fingerprint(await leavesOf(one)), fingerprint(await leavesOf(remote)))
  })
})
