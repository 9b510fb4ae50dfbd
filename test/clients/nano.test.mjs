// nano 11, the CouchDB client of the Apache project: every function that it
// offers for servers, databases, documents, attachments, changes and design
// documents. Queries and replication jobs are not served yet.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createHash, randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import nano from 'nano'
import { collect, createDatabase, databaseName, dropAfter, origin, url, within } from './target.mjs'

const server = nano(url)

/** A nano database scope on a fresh database. */
async function freshDatabase (t, query) {
  const db = server.use(await createDatabase(t, 'nano', query))
  t.after(() => db.changesReader.stop()) // a reader that a failed test left would poll for ever
  return db
}

/** Documents n00, n01, ... written in bulk. */
async function fill (db, count) {
  const docs = Array.from({ length: count }, (_, i) => ({ _id: `n${String(i).padStart(2, '0')}`, i }))
  const results = await db.bulk({ docs })
  for (const result of results) assert.equal(result.ok, true, JSON.stringify(result))
  return results
}

const ends = (emitter) => new Promise((resolve, reject) => emitter.on('end', resolve).on('error', reject))

describe('nano server functions', { concurrency: true, timeout: 60_000 }, () => {
  test('info, uuids, request', async () => {
    const info = await server.info()
    assert.equal(info.couchdb, 'Welcome')
    assert.equal(info.version, '3.5.2')
    assert.ok(info.uuid)
    assert.ok(info.vendor.name)
    assert.equal((await server.uuids()).uuids.length, 1)
    const { uuids } = await server.uuids(50)
    assert.equal(new Set(uuids).size, 50)
    for (const uuid of uuids) assert.match(uuid, /^[0-9a-f]{32}$/)
    assert.equal((await server.request({ path: '_up' })).status, 'ok')
  })

  test('db.create, db.get, db.list, db.listAsStream, db.destroy, db.updates', async (t) => {
    const name = dropAfter(t, databaseName('nano/with+slash'))
    assert.deepEqual(await server.db.create(name, { q: 3 }), { ok: true })
    await assert.rejects(server.db.create(name), { statusCode: 412, error: 'file_exists' })
    const info = await server.db.get(name)
    assert.equal(info.db_name, name)
    assert.equal(info.cluster.q, 3)
    assert.equal(info.doc_count, 0)
    assert.equal(info.instance_start_time, '0')
    for (const size of ['file', 'external', 'active']) assert.equal(typeof info.sizes[size], 'number')
    assert.equal((await server.use(name).info()).db_name, name)

    assert.ok((await server.db.list()).includes(name))
    assert.ok(JSON.parse(await collect(server.db.listAsStream())).includes(name))
    const updates = await server.db.updates({ since: '0' })
    assert.ok(updates.results.some((u) => u.db_name === name && u.type === 'created'))
    assert.ok(updates.last_seq)

    assert.deepEqual(await server.db.destroy(name), { ok: true })
    await assert.rejects(server.db.get(name), { statusCode: 404, error: 'not_found' })
    await assert.rejects(server.db.destroy(name), { statusCode: 404 })
    const after = await server.updates({ since: updates.last_seq })
    assert.ok(after.results.some((u) => u.db_name === name && u.type === 'deleted'))
  })

  test('names that cannot be and operations that the service does not offer are refused', async (t) => {
    await assert.rejects(server.db.create('Upper'), { statusCode: 403, error: 'illegal_database_name' })
    const db = await freshDatabase(t)
    await assert.rejects(db.compact(), { statusCode: 501, error: 'not_implemented' })
    await assert.rejects(db.view.compact('ddoc'), { statusCode: 501, error: 'not_implemented' })
  })

  test('no credentials and wrong credentials are refused', async (t) => {
    const db = await freshDatabase(t)
    const anonymous = nano(origin)
    assert.equal((await anonymous.info()).couchdb, 'Welcome')
    await assert.rejects(anonymous.use(db.config.db).get('x'), { statusCode: 401, error: 'unauthorized' })
    const stranger = nano(origin.replace('://', '://admin:wrong-password@'))
    await assert.rejects(stranger.db.list(), { statusCode: 401 })
  })
})

describe('nano document functions', { concurrency: true, timeout: 60_000 }, () => {
  test('insert, get, head, destroy', async (t) => {
    const db = await freshDatabase(t)
    const posted = await db.insert({ made: 'by post' })
    assert.equal(posted.ok, true)
    assert.match(posted.id, /^[0-9a-f]{32}$/)
    assert.equal((await db.insert({ _id: 'own', v: 1 })).id, 'own')

    const id = 'Rabbit/is it?+ü&=#'
    const first = await db.insert({ v: 1, run() { return 1 } }, id)
    assert.equal(first.id, id)
    const second = await db.insert({ _rev: first.rev, v: 2 }, { docName: id })
    await assert.rejects(db.insert({ v: 9 }, id), { statusCode: 409, error: 'conflict' })
    assert.deepEqual(await db.get(id), { _id: id, _rev: second.rev, v: 2 })
    assert.equal((await db.get(id, { rev: first.rev })).v, 1)
    const history = await db.get(id, { revs: true, revs_info: true })
    assert.deepEqual(history._revisions.ids, [second.rev.slice(2), first.rev.slice(2)])
    assert.deepEqual(history._revs_info.map((r) => r.status), ['available', 'available'])
    const leaves = await db.get(id, { open_revs: 'all' })
    assert.deepEqual(leaves.map((l) => l.ok._rev), [second.rev])
    const seq = await db.get(id, { local_seq: true })
    assert.ok(seq._local_seq !== undefined)

    const headers = await db.head(id)
    assert.equal(headers.etag, `"${second.rev}"`)
    assert.ok(headers['x-couch-request-id'])
    await assert.rejects(db.head('nobody'), { statusCode: 404 })
    await assert.rejects(db.get('nobody'), { statusCode: 404, error: 'not_found', reason: 'missing' })

    await assert.rejects(db.destroy(id, first.rev), { statusCode: 409 })
    const gone = await db.destroy(id, second.rev)
    assert.match(gone.rev, /^3-/)
    await assert.rejects(db.get(id), { statusCode: 404, reason: 'deleted' })
    const batch = await db.insert({ v: 1 }, { docName: 'batched', batch: 'ok' })
    assert.equal(batch.ok, true)
    assert.equal(batch.id, 'batched')
  })

  test('design documents and local documents are stored', async (t) => {
    const db = await freshDatabase(t)
    const { rev } = await db.insert({ views: { v: { map: (doc) => doc._id } } }, '_design/d')
    assert.equal((await db.get('_design/d'))._rev, rev)
    assert.equal((await db.head('_design/d')).etag, `"${rev}"`)
    const local = await db.insert({ a: 1 }, '_local/l')
    assert.match(local.rev, /^0-/)
    assert.equal((await db.get('_local/l')).a, 1)
    await db.destroy('_local/l', local.rev)
    await assert.rejects(db.get('_local/l'), { statusCode: 404 })
    await db.destroy('_design/d', rev)
  })

  test('bulk, list, listAsStream, fetch, fetchRevs', async (t) => {
    const db = await freshDatabase(t)
    const written = await fill(db, 12)
    const mixed = await db.bulk({ docs: [{ _id: 'n00' }, { _id: 'n01', _rev: written[1].rev, _deleted: true }, { _id: 'new' }] })
    assert.deepEqual(mixed.map((r) => r.error ?? r.ok), ['conflict', true, true])
    assert.deepEqual(await db.bulk({ new_edits: false, docs: [{ _id: 'old', _rev: '4-abc', _revisions: { start: 4, ids: ['abc', 'abb'] } }] }), [])
    assert.equal((await db.get('old'))._rev, '4-abc')

    const all = await db.list()
    assert.equal(all.total_rows, 13)
    assert.equal(all.offset, 0)
    assert.deepEqual(all.rows[0], { id: 'n00', key: 'n00', value: { rev: written[0].rev } })
    const some = await db.list({ startkey: 'n03', endkey: 'n05', include_docs: true, descending: false })
    assert.deepEqual(some.rows.map((r) => r.doc.i), [3, 4, 5])
    assert.deepEqual((await db.list({ key: 'n04' })).rows.map((r) => r.id), ['n04'])
    assert.deepEqual((await db.list({ keys: ['n05', 'n04'] })).rows.map((r) => r.id), ['n05', 'n04'])
    assert.deepEqual((await db.list({ start_key: 'n09', end_key: 'n03', descending: true, limit: 3, skip: 1 })).rows.map((r) => r.id), ['n08', 'n07', 'n06'])
    assert.deepEqual(JSON.parse(await collect(db.listAsStream({ limit: 2 }))).rows.map((r) => r.id), ['n00', 'n02'])

    const fetched = await db.fetch({ keys: ['n02', 'nobody', 'n01'] })
    assert.equal(fetched.rows[0].doc.i, 2)
    assert.equal(fetched.rows[1].error, 'not_found')
    assert.equal(fetched.rows[2].value.deleted, true)
    assert.equal(fetched.rows[2].doc, null)
    const revs = await db.fetchRevs({ keys: ['n02'] })
    assert.deepEqual(revs.rows, [{ id: 'n02', key: 'n02', value: { rev: written[2].rev } }])
  })

  test('partitionInfo, partitionedList, partitionedListAsStream', async (t) => {
    const db = await freshDatabase(t, '?partitioned=true')
    await db.bulk({ docs: [{ _id: 'cat:1' }, { _id: 'cat:2' }, { _id: 'dog:1' }] })
    const info = await db.partitionInfo('cat')
    assert.equal(info.partition, 'cat')
    assert.equal(info.doc_count, 2)
    assert.equal(info.doc_del_count, 0)
    assert.equal(typeof info.sizes.external, 'number')
    const list = await db.partitionedList('cat', { include_docs: true })
    assert.deepEqual(list.rows.map((r) => r.doc._id), ['cat:1', 'cat:2'])
    const streamed = JSON.parse(await collect(db.partitionedListAsStream('dog')))
    assert.deepEqual(streamed.rows.map((r) => r.id), ['dog:1'])
    await assert.rejects(db.insert({}, 'no-partition'), { statusCode: 400, error: 'illegal_docid' })
    assert.equal((await db.info()).props.partitioned, true)
  })
})

describe('nano attachment functions', { concurrency: true, timeout: 60_000 }, () => {
  const binary = randomBytes(300_000)
  const text = 'some text that compresses well. '.repeat(3000)

  test('attachment.insert, get, getAsStream, destroy', async (t) => {
    const db = await freshDatabase(t)
    const first = await db.attachment.insert('doc', 'b.bin', binary, 'application/octet-stream')
    assert.ok(binary.equals(await db.attachment.get('doc', 'b.bin')))
    const second = await db.attachment.insert('doc', 'dir/t.txt', text, 'text/plain', { rev: first.rev })
    assert.equal((await db.attachment.get('doc', 'dir/t.txt')).toString(), text)
    const third = await db.attachment.insert('doc', 'streamed.bin', Readable.from([binary.subarray(0, 1000), binary.subarray(1000)]), 'image/png', { rev: second.rev })
    assert.ok(binary.equals(await collect(db.attachment.getAsStream('doc', 'streamed.bin'))))
    assert.equal((await collect(db.attachment.getAsStream('doc', 'dir/t.txt'))).toString(), text)
    assert.ok(binary.equals(await db.attachment.get('doc', 'b.bin', { rev: first.rev })))
    // a JSON attachment must come back as bytes, not as a parsed object
    const fourth = await db.attachment.insert('doc', 'x.json', '{"a": 1}', 'application/json', { rev: third.rev })
    assert.equal((await db.attachment.get('doc', 'x.json')).toString(), '{"a": 1}')

    const stubs = (await db.get('doc'))._attachments
    assert.deepEqual(Object.keys(stubs).sort(), ['b.bin', 'dir/t.txt', 'streamed.bin', 'x.json'])
    assert.deepEqual(stubs['b.bin'], {
      content_type: 'application/octet-stream',
      revpos: 1,
      digest: 'md5-' + createHash('md5').update(binary).digest('base64'),
      length: binary.length,
      stub: true
    })
    assert.equal(stubs['dir/t.txt'].length, text.length)
    const encoded = (await db.get('doc', { att_encoding_info: true }))._attachments['dir/t.txt']
    assert.equal(encoded.encoding, 'gzip')
    assert.ok(encoded.encoded_length < text.length / 5)

    await assert.rejects(db.attachment.insert('doc', 'b.bin', binary, 'text/plain', { rev: first.rev }), { statusCode: 409 })
    await db.attachment.destroy('doc', 'b.bin', { rev: fourth.rev })
    await assert.rejects(db.attachment.get('doc', 'b.bin'), { statusCode: 404 })
    await assert.rejects(collect(db.attachment.getAsStream('doc', 'b.bin')), { statusCode: 404 })
  })

  test('multipart.insert and multipart.get', async (t) => {
    const db = await freshDatabase(t)
    const inserted = await db.multipart.insert({ v: 1 }, [
      { name: 'b.bin', data: binary, content_type: 'application/octet-stream' },
      { name: 't.txt', data: text, content_type: 'text/plain' }
    ], 'doc')
    assert.match(inserted.rev, /^1-/)
    assert.ok(binary.equals(await db.attachment.get('doc', 'b.bin')))
    assert.equal((await db.attachment.get('doc', 't.txt')).toString(), text)
    const updated = await db.multipart.insert({ v: 2, _rev: inserted.rev, _attachments: { 'b.bin': { stub: true } } },
      [{ name: 'n.txt', data: 'new', content_type: 'text/plain' }], { docName: 'doc' })
    assert.match(updated.rev, /^2-/)
    assert.deepEqual(Object.keys((await db.get('doc'))._attachments).sort(), ['b.bin', 'n.txt'])

    const small = await db.multipart.insert({ w: 1 }, [{ name: 'a.dat', data: Buffer.from('hello bytes'), content_type: 'application/x-raw' }], 'small')
    const raw = String(await db.multipart.get('small'))
    const parts = raw.split(/\r\n--[^\r\n]+|^--[^\r\n]+/).filter((p) => p.includes('\r\n\r\n'))
    assert.equal(parts.length, 2)
    const [head, body] = parts.map((p) => p.slice(p.indexOf('\r\n\r\n') + 4))
    const doc = JSON.parse(head)
    assert.equal(doc._rev, small.rev)
    assert.equal(doc._attachments['a.dat'].follows, true)
    assert.equal(body, 'hello bytes')
    assert.match(parts[1], /content-disposition: attachment; filename="a\.dat"/i)
  })

  test('inline attachments', async (t) => {
    const db = await freshDatabase(t)
    await db.insert({ _attachments: { 'b.bin': { content_type: 'application/x-b', data: binary.toString('base64') } } }, 'doc')
    const doc = await db.get('doc', { attachments: true })
    assert.equal(doc._attachments['b.bin'].data, binary.toString('base64'))
  })
})

describe('nano changes functions', { concurrency: true, timeout: 60_000 }, () => {
  test('changes and changesAsStream', async (t) => {
    const db = await freshDatabase(t)
    await fill(db, 10)
    const all = await db.changes()
    assert.equal(all.results.length, 10)
    assert.equal(all.pending, 0)
    const head = await db.changes({ limit: 4, include_docs: true })
    assert.equal(head.results.length, 4)
    assert.equal(head.pending, 6)
    assert.equal(typeof head.results[0].doc.i, 'number')
    const tail = await server.db.changes(db.config.db, { since: head.last_seq })
    assert.equal(tail.results.length, 6)
    assert.equal((await db.changes({ since: 'now' })).results.length, 0)
    const streamed = JSON.parse(await collect(db.changesAsStream({ since: '0' })))
    assert.equal(streamed.results.length, 10)
    const named = await db.changes({ filter: '_doc_ids', doc_ids: JSON.stringify(['n03']) })
    assert.deepEqual(named.results.map((r) => r.id), ['n03'])
    await assert.rejects(db.changes({ feed: 'none' }), { statusCode: 400 })
  })

  test('a continuous feed ends at its timeout', async (t) => {
    const db = await freshDatabase(t)
    await fill(db, 3)
    const text = await within(20_000, 'end of the feed', collect(db.changesAsStream({ feed: 'continuous', timeout: 200, since: '0' })))
    const lines = text.toString().split('\n').filter(Boolean).map((l) => JSON.parse(l))
    assert.equal(lines.length, 4)
    assert.ok(lines.at(-1).last_seq)
  })

  test('changesReader.get reads to the end and stops', async (t) => {
    const db = await freshDatabase(t)
    await fill(db, 25)
    const seen = []
    const batches = []
    const reader = db.changesReader.get({ since: '0', batchSize: 10, timeout: 1000 })
    reader.on('change', (c) => seen.push(c.id)).on('batch', (b) => batches.push(b.length))
    const last = await within(30_000, 'end of the reader', ends(reader))
    assert.equal(new Set(seen).size, 25)
    assert.deepEqual(batches, [10, 10, 5])
    assert.ok(last)
  })

  test('changesReader.start follows new changes, with documents and a selector', async (t) => {
    const db = await freshDatabase(t)
    const since = (await db.info()).update_seq
    const reader = db.changesReader.start({ since, includeDocs: true, selector: { wanted: true }, timeout: 10_000 })
    const ended = ends(reader)
    ended.catch(() => {})
    const seen = []
    const last = new Promise((resolve, reject) => {
      reader.on('error', reject)
      reader.on('change', (c) => {
        seen.push(c.doc)
        if (c.id === 'last') resolve()
      })
    })
    await db.insert({ wanted: false }, 'no')
    await db.insert({ wanted: true }, 'yes')
    await db.insert({ wanted: true }, 'last')
    await within(20_000, 'the last change', last)
    reader.removeAllListeners('error')
    reader.on('error', () => {}) // stop() aborts the poll under way, which nano reports as an error
    db.changesReader.stop()
    assert.deepEqual(seen.map((d) => d._id), ['yes', 'last'])
  })

  test('changesReader.spool reads everything in one request', async (t) => {
    const db = await freshDatabase(t)
    await fill(db, 40)
    const batches = []
    const reader = db.changesReader.spool({ since: '0', includeDocs: true, batchSize: 15 })
    reader.on('batch', (b) => batches.push(...b))
    const last = await within(30_000, 'end of the spool', ends(reader))
    assert.equal(new Set(batches.map((c) => c.id)).size, 40)
    assert.ok(batches.every((c) => typeof c.doc.i === 'number'))
    assert.ok(last && last !== '0', 'the line of last_seq was not understood')
  })
})

describe('nano design document functions', { concurrency: true, timeout: 60_000 }, () => {
  /** Twelve documents and a design document with a function of every kind. */
  async function designed (t, query) {
    const db = await freshDatabase(t, query)
    await fill(db, 12)
    await db.insert({
      views: {
        third: { map: 'function (doc) { emit(doc.i % 3, doc.i) }', reduce: '_sum' },
        i: { map: 'function (doc) { if (doc.i !== undefined) emit(doc.i) }' }
      },
      lists: { csv: 'function (head, req) { start({ headers: { "Content-Type": "text/csv" } }); var row; while ((row = getRow())) send(row.key + "," + row.id + "\\n") }' },
      shows: { json: 'function (doc, req) { return { json: { id: doc && doc._id, twice: doc && doc.i * 2, asked: req.query.asked } } }' },
      updates: { bump: 'function (doc, req) { var body = JSON.parse(req.body); doc[body.field] = body.value; return [doc, toJSON({ done: body.field })] }' }
    }, '_design/d')
    return db
  }

  test('view, viewAsStream: ranges, keys, queries, reduce', async (t) => {
    const db = await designed(t)
    const all = await db.view('d', 'i')
    assert.equal(all.total_rows, 12)
    assert.deepEqual(all.rows[3], { id: 'n03', key: 3, value: null })
    const some = await db.view('d', 'i', { startkey: 3, endkey: 5, include_docs: true })
    assert.deepEqual(some.rows.map((r) => r.doc.i), [3, 4, 5])
    assert.deepEqual((await db.view('d', 'i', { keys: [7, 99, 2] })).rows.map((r) => r.id), ['n07', 'n02'])
    assert.deepEqual((await db.view('d', 'i', { start_key: 9, end_key: 3, descending: true, limit: 2, skip: 1 })).rows.map((r) => r.key), [8, 7])
    assert.deepEqual((await db.view('d', 'third', { group: true })).rows, [{ key: 0, value: 18 }, { key: 1, value: 22 }, { key: 2, value: 26 }])
    assert.deepEqual((await db.view('d', 'third', { keys: [2, 0], group: true })).rows, [{ key: 2, value: 26 }, { key: 0, value: 18 }])
    assert.deepEqual((await db.view('d', 'third', { reduce: false, key: 1 })).rows.map((r) => r.value), [1, 4, 7, 10])
    const several = await db.view('d', 'i', { queries: [{ key: 4 }, { limit: 1, descending: true }] })
    assert.deepEqual(several.results.map((r) => r.rows.map((row) => row.id)), [['n04'], ['n11']])
    assert.equal(JSON.parse(await collect(db.viewAsStream('d', 'i', { limit: 2 }))).rows.length, 2)
    await assert.rejects(db.view('d', 'none'), { statusCode: 404, error: 'not_found' })
    await assert.rejects(db.view('d', 'i', { group: true }), { statusCode: 400, error: 'query_parse_error' })
  })

  test('viewWithList, viewWithListAsStream', async (t) => {
    const db = await designed(t)
    assert.equal(await db.viewWithList('d', 'i', 'csv', { startkey: 10 }), '10,n10\n11,n11\n')
    assert.equal((await collect(db.viewWithListAsStream('d', 'i', 'csv', { limit: 1 }))).toString(), '0,n00\n')
    await assert.rejects(db.viewWithList('d', 'i', 'none'), { statusCode: 404, error: 'not_found' })
  })

  test('show', async (t) => {
    const db = await designed(t)
    assert.deepEqual(await db.show('d', 'json', 'n04', { asked: 'yes' }), { id: 'n04', twice: 8, asked: 'yes' })
    await assert.rejects(db.show('d', 'none', 'n04'), { statusCode: 404 })
  })

  test('updateWithHandler, atomic', async (t) => {
    const db = await designed(t)
    assert.equal(await db.updateWithHandler('d', 'bump', 'n05', { field: 'colour', value: 'red' }), '{"done":"colour"}')
    assert.equal((await db.get('n05')).colour, 'red')
    await db.atomic('d', 'bump', 'n05', { field: 'colour', value: 'blue' })
    const changed = await db.get('n05')
    assert.equal(changed.colour, 'blue')
    assert.match(changed._rev, /^3-/)
    await assert.rejects(db.atomic('d', 'none', 'n05', {}), { statusCode: 404 })
  })

  test('partitionedView, partitionedViewAsStream', async (t) => {
    const db = await freshDatabase(t, '?partitioned=true')
    await db.bulk({ docs: [{ _id: 'cat:1', n: 1 }, { _id: 'cat:2', n: 2 }, { _id: 'dog:1', n: 3 }] })
    await db.insert({ views: { n: { map: 'function (doc) { emit(doc.n, doc.n) }', reduce: '_sum' } } }, '_design/d')
    const cats = await db.partitionedView('cat', 'd', 'n', { reduce: false })
    assert.deepEqual(cats.rows.map((r) => r.id), ['cat:1', 'cat:2'])
    assert.deepEqual((await db.partitionedView('cat', 'd', 'n')).rows, [{ key: null, value: 3 }])
    assert.deepEqual(JSON.parse(await collect(db.partitionedViewAsStream('dog', 'd', 'n', { reduce: false }))).rows.map((r) => r.id), ['dog:1'])
    await assert.rejects(db.view('d', 'n'), { statusCode: 400, error: 'query_parse_error' })
  })

  test('a function that cannot be compiled, and one that refuses', async (t) => {
    const db = await freshDatabase(t)
    await assert.rejects(db.insert({ views: { v: { map: 'function (doc) { emit( }' } } }, '_design/bad'), { statusCode: 400, error: 'compilation_error' })
    await db.insert({ validate_doc_update: 'function (doc) { if (doc.bad) throw { forbidden: "no" }; if (doc.who) throw { unauthorized: "who" } }' }, '_design/v')
    await assert.rejects(db.insert({ bad: 1 }, 'x'), { statusCode: 403, error: 'forbidden', reason: 'no' })
    await assert.rejects(db.insert({ who: 1 }, 'x'), { statusCode: 401, error: 'unauthorized', reason: 'who' })
    assert.deepEqual((await db.bulk({ docs: [{ _id: 'a' }, { _id: 'b', bad: 1 }] })).map((r) => r.error ?? r.ok), [true, 'forbidden'])
  })
})
